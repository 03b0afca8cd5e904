//! The report of a diagnosis: a verdict, findings, and tables.

use serde::Serialize;
use serde_json::{Value, json};

use super::text;
use crate::table::row::shortened;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    #[default]
    Ok,
    Info,
    Warning,
    Failing,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Finding {
    pub title: String,
    pub detail: String,
    pub evidence: Vec<String>,
    pub resource: Option<Value>,
    pub suggestion: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Table {
    pub title: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub verdict: String,
    pub severity: Severity,
    pub findings: Vec<Finding>,
    pub tables: Vec<Table>,
}

const EVENTS_MAX: usize = 8;

impl Finding {
    pub fn new(title: impl Into<String>, detail: impl Into<String>) -> Finding {
        Finding { title: title.into(), detail: detail.into(), ..Finding::default() }
    }

    pub(crate) fn evidence(mut self, line: impl Into<String>) -> Finding {
        let line = line.into();
        if !line.is_empty() {
            self.evidence.push(line);
        }
        self
    }

    pub(crate) fn suggests(mut self, suggestion: impl Into<String>) -> Finding {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// What the page leads to.
    pub fn about(mut self, (group, version, resource): (&str, &str, &str), namespace: &str, name: &str) -> Finding {
        self.resource = Some(json!({
            "group": group, "version": version, "resource": resource, "namespace": namespace, "name": name,
        }));
        self
    }
}

impl Report {
    pub fn new(severity: Severity, verdict: impl Into<String>) -> Report {
        Report { verdict: verdict.into(), severity, ..Report::default() }
    }

    /// The worst that is said becomes the verdict.
    pub fn say(&mut self, severity: Severity, verdict: impl Into<String>) {
        if severity > self.severity || self.verdict.is_empty() {
            (self.severity, self.verdict) = (severity, verdict.into());
        }
    }

    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Warnings about the object itself, as evidence of their own.
    pub fn events(&mut self, events: &[Value]) {
        let warnings = events.iter().rev().filter(|event| event["type"] == "Warning");
        let lines: Vec<String> = warnings
            .take(EVENTS_MAX)
            .map(|event| {
                let count = event["count"].as_i64().or(event["series"]["count"].as_i64()).unwrap_or(1);
                let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
                format!("{}{times}: {}", text(event, "reason"), shortened(text(event, "message")))
            })
            .collect();
        if !lines.is_empty() {
            self.findings.push(Finding {
                evidence: lines,
                ..Finding::new("Warnings", "what components reported of this object, newest first")
            });
        }
    }

    pub fn shown(&self) -> Value {
        json!({"verdict": self.verdict, "severity": self.severity, "findings": self.findings, "tables": self.tables})
    }
}
