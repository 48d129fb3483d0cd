"""The nouns: everything that passes from one stage to the next, free of torch."""

from serpette.records.base import Frozen, Record
from serpette.records.common import PARTS, DataRef, ModelRef, Part, Preprocessing, Provenance
from serpette.records.cost import Cost
from serpette.records.plan import METHODS, Method, Plan, Site
from serpette.records.profile import Profile, SiteScore, Tokens, WindowScore
from serpette.records.pruning import MANIFEST, Pruning
from serpette.records.scan import BadFile, Duplicate, Scan, SplitScan
from serpette.records.scores import ClassScore, HeadFit, HeadKind, Scores
from serpette.records.selection import Baseline, Candidate, Selection, Winner

__all__ = [
    "MANIFEST",
    "METHODS",
    "PARTS",
    "BadFile",
    "Baseline",
    "Candidate",
    "ClassScore",
    "Cost",
    "DataRef",
    "Duplicate",
    "Frozen",
    "HeadFit",
    "HeadKind",
    "Method",
    "ModelRef",
    "Part",
    "Plan",
    "Preprocessing",
    "Profile",
    "Provenance",
    "Pruning",
    "Record",
    "Scan",
    "Scores",
    "Selection",
    "Site",
    "SiteScore",
    "SplitScan",
    "Tokens",
    "WindowScore",
    "Winner",
]
