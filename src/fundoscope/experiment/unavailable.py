"""A cell that this machine cannot run: no fault of the cell or of the study, which goes on with the others."""


class Unavailable(Exception):  # noqa: N818  # what a machine lacks is not an error
    """One sentence: which framework, device or processor is missing."""
