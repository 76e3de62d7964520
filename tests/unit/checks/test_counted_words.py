"""The check of first words and local names: what counts, and how the counts go down."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.checks import ceilings, words

MODULE = dedent(
    '''\
    """What a shop sells. Goods are things: It sells these.

    Attributes:
        price: Whose it is.
        whose: A name in small letters is no first word.
    """

    LIMIT = 3
    """Those that may
    come, such as It.

    Nobody else."""

    # The sum of all,
    # What follows a comma in the next line.
    # It ends here. It does.
    x = 1  # Whom it may concern


    def sell():
        """Itself and Whatever are other words; `What` is code. "Such a case" counts."""
        text = "What is in a string is no docstring"
        return text  # of a small letter
    '''
)


def test_sentences_of_docstrings_and_comments_count() -> None:
    assert [(place.line, place.word, place.begins) for place in words.first_words(MODULE)] == [
        (1, "What", True),
        (1, "It", False),
        (4, "Whose", False),
        (9, "Those", True),
        (12, "Nobody", False),
        (16, "It", False),
        (16, "It", False),
        (17, "Whom", True),
        (21, "Such", False),
    ]


def test_code_and_headings_of_pages_are_left_out() -> None:
    page = dedent(
        """\
        # What it is
        A job runs. It ends.
        ## Who may see it
        What follows a heading counts, What is within a sentence
        What begins a line within one does not.

        ```
        What is code
        ```
        | key | What is in a cell |
        - Such a list
        1. `value`: Of a kind
        """
    )
    assert [(place.line, place.word) for place in words.page_words(page)] == [
        (2, "It"),
        (4, "What"),
        (10, "What"),
        (11, "Such"),
        (12, "Of a"),
    ]


def test_every_kind_of_assignment_counts() -> None:
    code = dedent(
        """\
        it = 1
        it += 1
        one, (left, right) = pair
        for found in things: pass
        known: int = 2
        with open(it) as there: pass
        if told := find(): pass
        [it for it in range(one)]
        thing.left = there.found = 1
        def known(it): return it
        """
    )
    assert [(place.line, place.word) for place in words.local_names(code)] == [
        (1, "it"), (2, "it"), (3, "one"), (3, "left"), (4, "found"), (5, "known"), (6, "there"),
        (7, "told"), (8, "it"),
    ]  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two bad local names in its product, and their count in the file."""
    (tmp_path / "tests/checks").mkdir(parents=True)
    (tmp_path / "eva_master").mkdir()
    (tmp_path / "eva_master/shop.py").write_text("it = 1\nfound = it\n")
    ceilings.lower(tmp_path)
    return tmp_path


def test_counts_go_down_and_never_up(repository: Path) -> None:
    module = repository / "eva_master/shop.py"
    assert list(ceilings.faults(repository)) == []
    module.write_text("it = 1\nfound = it\nleft = it\n")
    (fault,) = ceilings.faults(repository)
    assert fault.startswith("product, local names: 3, at most 2")
    ceilings.lower(repository)
    assert list(ceilings.faults(repository)) == [fault]
    module.write_text("it = 1\n")
    assert list(ceilings.faults(repository)) == []
    ceilings.lower(repository)
    module.write_text("it = 1\nfound = it\n")
    (fault,) = ceilings.faults(repository)
    assert fault.startswith("product, local names: 2, at most 1")


def test_of_two_counts_of_a_merge_the_least_holds(repository: Path) -> None:
    file = repository / ceilings.FILE
    file.write_text(file.read_text() + "1 product, local names\n")
    (fault,) = ceilings.faults(repository)
    assert fault.startswith("product, local names: 2, at most 1")
    ceilings.lower(repository)
    assert file.read_text().count("product, local names") == 1


def test_bad_words_of_files_are_shown_with_their_lines(repository: Path) -> None:
    (repository / "README.md").write_text("Eva is a scheduler. It\nruns jobs.\n")
    assert list(ceilings.places(repository, ["README.md", "eva_master/shop.py"])) == [
        "README.md:1: It",
        "eva_master/shop.py:1: it",
        "eva_master/shop.py:2: found",
    ]
