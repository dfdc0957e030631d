# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of the verification role: names for its pure functions, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _report_verification as report
from ansible_collections.gpu.fleet.plugins.plugin_utils import _verification_collective as collective
from ansible_collections.gpu.fleet.plugins.plugin_utils import _verification_result as result


def job(node: Mapping[str, Any], host: str, launches: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    return collective.job(host, node, launches, settings)


def record(found: Mapping[str, Any], host: str, fingerprint: str) -> dict[str, Any]:
    return result.record(host, found, fingerprint)


def framework_failures(answer: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    return result.failures({"checks": collective.framework_checks(answer, expected)})


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "framework_failures": framework_failures,
            "verification_node": collective.node,
            "verification_collectives": collective.collectives,
            "verification_job": job,
            "verification_result": result.document,
            "verification_record": record,
            "verification_summary": result.summary,
            "verification_table": result.table,
            "verification_junit": result.junit,
            "verification_report": report.html,
        }
