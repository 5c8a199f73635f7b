"""What a user can do wrong, told in one line."""


class UserError(Exception):
    """A mistake of the user's: place, what was expected, what came and what to try, in one line.

    The command line prints the message on stderr and exits with code 2; no traceback is shown.
    """
