"""(e) What many plans cost in one pass that shares their first blocks, against one pass for each plan."""

from typing import get_args

import timm

import serpette
from serpette.data.pixels import Pixels
from serpette.evaluation.collect import collect, collect_plans
from serpette.evaluation.sweep import Sweep
from serpette.evaluation.trunk import features
from serpette.models.base import adapt
from serpette.records import Method
from serpette.redundancy.calibrate import profile_pixels

from .images import noise
from .report import Ratio, Report, Row
from .timing import interleaved

SIDE, BATCH, ROUNDS = 98, 8, 5
METHODS: tuple[Method, ...] = ("block", "attention", "mlp", "joint")
DROPS = range(1, 7)
OF_PREDICTED = 0.9
