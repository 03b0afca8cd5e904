//! A scenario: which controllers run, what users do, and what the end must look like.
//!
//! ```text
//! controllers replicaset-controller ...   # the first is disturbed, the others run undisturbed beside it
//! inexact                                 # something may be made twice on the way, as long as the end is right
//! flood {"apiVersion": ...}               # an object of which a flood holds many; `{n}` is replaced by a number
//! create {"apiVersion": ...}              # an object; lines that begin with a space go on with the one before
//! until 3 pods web Running                # waits until the state has this line
//! patch /apis/... {...}                   # a merge patch, `/status` included where that is meant
//! delete /apis/... {...}                  # with DeleteOptions
//! show /api/v1/namespaces/a/pods /metadata/labels/app /status/phase
//! end                                     # the state in the end: lines of `show`, counted
//! 3 pods web Running
//! ```
//!
//! The namespace `a` with its service account and the node `n1` are there. Pods are bound to the node and become ready;
//! a pod with the annotation `ends: Succeeded` or `ends: Failed` ends so instead.

use std::path::Path;

use serde_json::Value;

#[derive(Clone, Debug)]
pub enum Step {
    Create(Value),
    Until(String),
    Patch(String, Value),
    Delete(String, Value),
}

#[derive(Clone, Debug)]
pub struct Show {
    pub path: String,
    pub pointers: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pub name: String,
    pub controllers: Vec<String>,
    pub inexact: bool,
    pub flood: Option<String>,
    pub steps: Vec<Step>,
    pub shows: Vec<Show>,
    /// Sorted.
    pub end: Vec<String>,
}

impl Scenario {
    pub fn all() -> Vec<Scenario> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/scenarios");
        let entries = std::fs::read_dir(folder).expect("the folder of scenarios");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("a scenario").path()).collect();
        paths.sort();
        let read = |path: &std::path::PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Scenario::parse(&name, &std::fs::read_to_string(path).expect("a readable scenario"))
        };
        paths.iter().map(read).collect()
    }

    fn parse(name: &str, text: &str) -> Scenario {
        let mut scenario = Scenario { name: name.into(), ..Scenario::default() };
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            match (line.starts_with(' '), lines.last_mut()) {
                (true, Some(last)) => last.push_str(line),
                _ => lines.push(line.into()),
            }
        }
        let mut in_end = false;
        for line in &lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let json = |text: &str| -> Value {
                serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {line}: {error}"))
            };
            let at = |rest: &str| {
                let (path, body) = rest.split_once(' ').unwrap_or((rest, "{}"));
                (path.to_owned(), json(body))
            };
            match word {
                _ if in_end => scenario.end.push(line.clone()),
                "controllers" => scenario.controllers = rest.split_whitespace().map(Into::into).collect(),
                "inexact" => scenario.inexact = true,
                "flood" => scenario.flood = Some(rest.into()),
                "create" => scenario.steps.push(Step::Create(json(rest))),
                "until" => scenario.steps.push(Step::Until(rest.into())),
                "patch" => {
                    let (path, body) = at(rest);
                    scenario.steps.push(Step::Patch(path, body));
                }
                "delete" => {
                    let (path, body) = at(rest);
                    scenario.steps.push(Step::Delete(path, body));
                }
                "show" => {
                    let mut words = rest.split_whitespace().map(String::from);
                    let path = words.next().expect("a path to show");
                    scenario.shows.push(Show { path, pointers: words.collect() });
                }
                "end" => in_end = true,
                other => panic!("{name}: there is no {other:?}"),
            }
        }
        scenario.end.sort();
        scenario
    }
}
