"""Errors that are messages for a human.

TaxiwayError
└── ServingError
    └── RepositoryError   a version cannot be read, published or found
"""


class TaxiwayError(Exception):
    """Root of all errors of the product; the message is for its user."""

    exit_code = 1


class ServingError(TaxiwayError):
    """Something after the push went wrong."""


class RepositoryError(ServingError):
    """A version cannot be read, published or found."""
