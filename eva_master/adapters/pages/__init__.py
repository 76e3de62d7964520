"""Pages of the cluster, for browsers.

A page is a row of `eva_master.adapters.pages.routes.PAGES`:

- a path, such as ``/jobs/{job}``, and the least role that sees it;
- ``reads``, which asks the services by the methods of the users' port (`Ask`), so that a page knows
  what an RPC would have answered the same caller, and nothing else;
- ``shows``, a pure function below ``shown/`` from these messages to the values of the template;
- a template below ``templates/``: the content, around which ``base.html`` is put.

A live part changes while somebody looks, and has an id of its own in the page::

    {% call live("jobs") %} ... {% endcall %}

A live part that changed is sent to all open copies of the page, at most once a second. Pages are
rendered once for all who may see the same: all of a role, or with `Sharing.OWNER` all of a role and
an owner. So neither ``reads`` nor ``shows`` knows more of a viewer than this audience.

Templates escape every value and write out characters that act on a display, such as those that
reverse the direction of text; nothing is ever marked as safe. The pages run no inline script and
have no inline style, which browsers would refuse: use classes, and attributes of SVG for figures.

An action is a row of ``routes.ACTIONS``: a path, the method of the users' port that a POST calls,
and the page that is shown next.
"""
