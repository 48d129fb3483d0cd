"""Every exception that serpette raises on purpose.

    SerpetteError               one clear line: what was wrong, what was expected, what to do next
    ├── DataError               images, labels, splits
    ├── ModelError              a model that cannot be found, read or understood
    ├── PlanError               a plan that does not fit its model
    ├── RecordError             a JSON file that is not the record it should be
    ├── SaveError               a model that cannot be saved so that it loads with equal outputs
    └── NonFiniteError          NaN or infinity where numbers were expected

The command line prints the line and exits with code 2.
"""


class SerpetteError(Exception):
    """Base of all errors that a user can cause and mend."""


class DataError(SerpetteError):
    """The images, their labels or their splits are not usable as asked."""


class ModelError(SerpetteError):
    """The model cannot be found, read or understood."""


class PlanError(SerpetteError):
    """The plan does not fit the model."""


class RecordError(SerpetteError):
    """A JSON file is not the record that it should be."""


class SaveError(SerpetteError):
    """The model cannot be saved so that it loads again with equal outputs."""


class NonFiniteError(SerpetteError):
    """The model produced NaN or infinity where numbers were expected."""
