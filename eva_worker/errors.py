"""The errors of the worker, as one tree.

WorkerError
├── BadOrder               an order or a file list that no correct master sends
├── DevicesExhausted       more GPUs or CPUs asked for than the instance has left
├── BadIdentity            a key or certificate that is damaged or another instance's
├── NotEnrolled            there is no certificate to talk to the master with
│   └── JoinRefused        the master, or the token, has no place for this machine
├── RuntimeUnavailable     what runs the tasks does not answer
├── Unprotected            tasks would reach what is the instance's alone
├── StartFailed            the task's process could not be started
│   ├── ImageRefused       a registry does not give an image to this instance
│   └── InstanceFailed     the fault is the instance's, such as an engine that went away
├── Malformed              a report of a task that breaks a rule: the task fails
└── TransferFailed         a download or an upload failed
    ├── Missing            the object or file does not exist: do not try again
    ├── Corrupt            the data do not match their digest
    ├── TooLarge           the disk of the instance cannot hold the files
    ├── UnsupportedInput   inputs with this kind of URL cannot be fetched
    │   └── InputRefused   the operator does not allow inputs from there
    ├── UnstorableFile     a file of a task that cannot be stored, however often it is tried
    │   └── UnstorableName a file name that cannot be a key of the object store
    └── StoreUnavailable   the object store does not answer: try again later

Their messages are fit for the user.
"""


class WorkerError(Exception):
    """Root of all errors of the worker; the message is fit for the user."""


class BadOrder(WorkerError):
    """The order cannot be carried out as it is."""


class DevicesExhausted(WorkerError):
    """The instance does not have this many free devices."""


class BadIdentity(WorkerError):
    """The instance's key or certificate is damaged or belongs to another instance."""


class NotEnrolled(WorkerError):
    """There is no certificate to talk to the master with."""


class JoinRefused(NotEnrolled):
    """This machine cannot become a node as it was told; the same command would fail again."""


class RuntimeUnavailable(WorkerError):
    """No runtime for tasks is there, or it does not answer."""


class Unprotected(WorkerError):
    """Tasks on this instance would reach what is not for them, so none may run."""


class StartFailed(WorkerError):
    """The task's process could not be started."""


class ImageRefused(StartFailed):
    """A registry does not give an image to this instance: credentials are missing or wrong."""


class AttachRefused(WorkerError):
    """A command or a connection cannot get into a task.

    Args:
        message: Why.
        hint: Advice on what to do instead.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InstanceFailed(StartFailed):
    """The task could not be started here, and may well be elsewhere or later."""


class Malformed(WorkerError):
    """A task has reported something that breaks a rule of the protocol."""


class TransferFailed(WorkerError):
    """Files could not be downloaded or uploaded."""


class Missing(TransferFailed):
    """There is no such object or file."""


class Corrupt(TransferFailed):
    """The bytes do not match their digest."""


class TooLarge(TransferFailed):
    """The files are more than any task may bring to an instance with this disk."""


class UnsupportedInput(TransferFailed):
    """Inputs of this kind cannot be fetched."""


class InputRefused(UnsupportedInput):
    """The operator does not allow inputs from this place."""


class UnstorableFile(TransferFailed):
    """A file or directory of a task cannot be stored, however often it is tried."""


class UnstorableName(UnstorableFile):
    """The file's name cannot be an object's key."""


class StoreUnavailable(TransferFailed):
    """The object store failed; a later try may succeed."""


class Forbidden(StoreUnavailable):
    """The object store denies access; a later try may succeed once permissions have changed."""
