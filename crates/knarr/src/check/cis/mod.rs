//! `knarr check --cis`: the checks of the CIS Kubernetes Benchmark 1.12, by their ids, put to a cluster that runs here.
//!
//! [`state`] looks at files, processes, sockets and objects as they are; every other file holds rules, which only read that.
//! Titles and advice are our own words; the ids are the benchmark's.

mod state;
mod probe;
mod files;
mod api_server;
mod control;
mod kubelet;
mod rights;
mod pods;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde_json::{Value, json};
use state::State;

/// Where to look.
#[derive(Clone, Debug)]
pub struct Place {
    pub data_dir: PathBuf,
    pub kubeconfig: Option<PathBuf>,
    pub node_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// What a rule found. The text says what was seen.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Good(String),
    Bad(String),
    /// Only a person can judge it.
    Unknown(String),
    NotApplicable(String),
}

/// One check of the benchmark.
struct Check {
    id: &'static str,
    title: &'static str,
    /// The benchmark calls it automated. What it calls manual cannot fail, only be warned of.
    scored: bool,
    /// What to do where it is not met.
    advice: &'static str,
    rule: fn(&State) -> Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Pass,
    Fail,
    Warn,
    NotApplicable,
}

/// One line of the answer.
struct Finding {
    check: &'static Check,
    mark: Mark,
    detail: String,
}

const fn scored(id: &'static str, title: &'static str, advice: &'static str, rule: fn(&State) -> Verdict) -> Check {
    Check { id, title, scored: true, advice, rule }
}

const fn manual(id: &'static str, title: &'static str, advice: &'static str, rule: fn(&State) -> Verdict) -> Check {
    Check { id, title, scored: false, advice, rule }
}

/// Every check, in the order of the benchmark.
fn checks() -> impl Iterator<Item = &'static Check> {
    let sections: [&'static [Check]; 9] = [
        files::CONTROL_PLANE,
        api_server::CHECKS,
        control::CHECKS,
        files::NODE,
        kubelet::CHECKS,
        rights::CHECKS,
        pods::STANDARDS,
        pods::NETWORK,
        pods::GENERAL,
    ];
    sections.into_iter().flatten()
}

/// Looks, judges and prints.
pub async fn run(place: &Place, output: Output) -> anyhow::Result<()> {
    let state = State::look(place).await?;
    let findings = judge(&state);
    match output {
        Output::Text => print!("{}", table(&findings)),
        Output::Json => println!("{:#}", document(&findings)),
    }
    Ok(())
}

fn judge(state: &State) -> Vec<Finding> {
    let judged = |check: &'static Check| {
        let (mark, detail) = match (check.rule)(state) {
            Verdict::Good(detail) => (Mark::Pass, detail),
            Verdict::Bad(detail) if check.scored => (Mark::Fail, detail),
            Verdict::Bad(detail) | Verdict::Unknown(detail) => (Mark::Warn, detail),
            Verdict::NotApplicable(detail) => (Mark::NotApplicable, detail),
        };
        Finding { check, mark, detail }
    };
    checks().map(judged).collect()
}

impl Mark {
    const ALL: [Mark; 4] = [Mark::Pass, Mark::Fail, Mark::Warn, Mark::NotApplicable];

    fn name(self) -> &'static str {
        match self {
            Mark::Pass => "PASS",
            Mark::Fail => "FAIL",
            Mark::Warn => "WARN",
            Mark::NotApplicable => "N/A",
        }
    }

    fn needs_advice(self) -> bool {
        matches!(self, Mark::Fail | Mark::Warn)
    }
}

fn count(findings: &[Finding], mark: Mark) -> usize {
    findings.iter().filter(|finding| finding.mark == mark).count()
}

fn table(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, mark, detail } in findings {
        text += &format!("{:<4}  {:<7} {}: {detail}\n", mark.name(), check.id, check.title);
        if mark.needs_advice() {
            text += &format!("      {:<7} to do: {}\n", "", check.advice);
        }
    }
    let counts: Vec<String> =
        Mark::ALL.into_iter().map(|mark| format!("{} {}", count(findings, mark), mark.name())).collect();
    text + &format!("\nCIS Kubernetes Benchmark 1.12, {} checks: {}\n", findings.len(), counts.join(", "))
}

fn document(findings: &[Finding]) -> Value {
    let one = |Finding { check, mark, detail }: &Finding| {
        let mut line = json!({
            "id": check.id, "title": check.title, "scored": check.scored, "result": mark.name(), "detail": detail,
        });
        if mark.needs_advice() {
            line["advice"] = check.advice.into();
        }
        line
    };
    json!({
        "benchmark": "CIS Kubernetes Benchmark 1.12",
        "checks": findings.iter().map(one).collect::<Vec<_>>(),
        "summary": {
            "pass": count(findings, Mark::Pass), "fail": count(findings, Mark::Fail),
            "warn": count(findings, Mark::Warn), "notApplicable": count(findings, Mark::NotApplicable),
        },
    })
}

/// At most a few names of many.
fn some(names: &[String]) -> String {
    const SHOWN_MAX: usize = 5;
    match names.len() {
        0..=SHOWN_MAX => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN_MAX].join(", "), more - SHOWN_MAX),
    }
}
