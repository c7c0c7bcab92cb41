"""Errors of the store; each message names the problem, the value and the remedy."""


class StoreError(Exception):
    """Base of all errors that the store raises on purpose."""


class StoreLocked(StoreError):
    """Another process owns the database of this data folder; `Store.in_memory` works anyway."""


class StoreUnusable(StoreError):
    """The database file or its lock cannot be created or written."""


class TeamStoreUnusable(StoreUnusable):
    """The store that the settings name cannot be reached, read or written."""


class NotInStore(StoreError):
    """The store holds no experiment or run with this id."""


class PredictionsUnreadable(StoreError):
    """A prediction file is missing, damaged, or lacks the requested columns."""


class ImportUnusable(StoreError):
    """A file to import is no CSV of the Dynamo harness, or would replace another one."""


class NotExportable(StoreError):
    """The requested format cannot express the measurements of this experiment."""
