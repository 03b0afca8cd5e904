//! A scenario: which controllers run, what users do, and what the end must look like.
//!
//! ```text
//! controllers replicaset-controller ...   # the first is disturbed, the others run undisturbed beside it
//! flood {"apiVersion": ...}               # an object of which a flood holds many; `{n}` is replaced by a number.
//!                                         # `flood 1000 {...}` where each costs much, `flood 10000 {...}` where many are usual
//! answer /apis/... {...}                  # what a server behind the API server would answer, such as one for metrics
//! create {"apiVersion": ...}              # an object; lines that begin with a space go on with the one before.
//!                                         # `{now}` is the time, `{now+90}` that many seconds later
//! until 3 pods web Running                # waits until the state has this line
//! wait 300                                # so many seconds pass
//! skip 34560000                           # the clock goes on by so many seconds while nothing else happens, for what takes years
//! patch /apis/... {...}                   # a merge patch, `/status` included where that is meant
//! put /apis/... {...}                     # an update of the whole, for subresources that have no patch
//! delete /apis/... {...}                  # with DeleteOptions
//! show /api/v1/namespaces/a/pods /metadata/labels/app /status/phase
//! show /api/v1/nodes?shown /metadata/name # only those with the label `shown`; with `?!flood`, those without that one
//! end                                     # the state in the end: lines of `show`, counted
//! 3 pods web Running
//! ```
//!
//! What is shown of an object are JSON pointers into it. `[type=Ready]` as a part of one is the item of a list that has that
//! field; of a list the length is shown; of what begins with `?` only whether it is there.
//!
//! `show cloud` shows the routes and load balancers of the cloud around the cluster.
//!
//! The namespace `a` with its service account and the node `n1` are there. Pods are bound to the node and become ready;
//! those that are never started again succeed. The annotation `ends: Succeeded` or `ends: Failed` says otherwise, and a pod
//! with `ends: Never` is left alone. Where there is a Lease of `n1`, it is renewed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

#[derive(Clone, Debug)]
pub enum Step {
    /// The text of an object, in which times are still to be filled in.
    Create(String),
    Until(String),
    Wait(Duration),
    Skip(Duration),
    Patch(String, String),
    Put(String, String),
    Delete(String, String),
}

#[derive(Clone, Debug)]
pub struct Show {
    pub path: String,
    /// Only objects with this label, or without it.
    pub label: Option<(bool, String)>,
    pub pointers: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pub name: String,
    pub controllers: Vec<String>,
    pub answers: BTreeMap<String, Value>,
    pub flood: Option<(usize, String)>,
    pub steps: Vec<Step>,
    pub shows: Vec<Show>,
    /// Sorted.
    pub end: Vec<String>,
}

/// How many objects a flood has where nothing else is said: enough that asking once more for each pair of them would be noticed.
/// The scenarios of the controllers that large clusters depend on most say 10,000; `FLOOD=10000` makes it so for all.
const FLOOD: usize = 2_000;

fn flood_usually() -> usize {
    std::env::var("FLOOD").ok().and_then(|count| count.parse().ok()).unwrap_or(FLOOD)
}

impl Scenario {
    pub fn read(name: &str) -> Scenario {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/scenarios");
        let text = std::fs::read_to_string(folder.join(format!("{name}.txt")));
        let scenario = Scenario::parse(name, &text.expect("a readable scenario"));
        assert_eq!(scenario.controllers[0], name, "the first controller is the one at test");
        scenario
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
            let at = |rest: &str| {
                let (path, body) = rest.split_once(' ').unwrap_or((rest, "{}"));
                (path.to_owned(), body.to_owned())
            };
            match word {
                _ if in_end => scenario.end.push(line.clone()),
                "controllers" => scenario.controllers = rest.split_whitespace().map(Into::into).collect(),
                "flood" => {
                    let counted = rest.split_once(' ').and_then(|(count, rest)| Some((count.parse().ok()?, rest)));
                    let (count, object) = counted.unwrap_or_else(|| (flood_usually(), rest));
                    scenario.flood = Some((count, object.into()));
                }
                "answer" => {
                    let (path, body) = at(rest);
                    let body = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
                    scenario.answers.insert(path, body);
                }
                "create" => scenario.steps.push(Step::Create(rest.into())),
                "until" => scenario.steps.push(Step::Until(rest.into())),
                "wait" => scenario.steps.push(Step::Wait(Duration::from_secs(rest.parse().expect("seconds")))),
                "skip" => scenario.steps.push(Step::Skip(Duration::from_secs(rest.parse().expect("seconds")))),
                "patch" => {
                    let (path, body) = at(rest);
                    scenario.steps.push(Step::Patch(path, body));
                }
                "put" => {
                    let (path, body) = at(rest);
                    scenario.steps.push(Step::Put(path, body));
                }
                "delete" => {
                    let (path, body) = at(rest);
                    scenario.steps.push(Step::Delete(path, body));
                }
                "show" => {
                    let mut words = rest.split_whitespace().map(String::from);
                    let path = words.next().expect("a path to show");
                    let (path, label) = path.split_once('?').map_or((path.as_str(), None), |(path, label)| {
                        let wanted = !label.starts_with('!');
                        (path, Some((wanted, label.trim_start_matches('!').to_owned())))
                    });
                    scenario.shows.push(Show { path: path.into(), label, pointers: words.collect() });
                }
                "end" => in_end = true,
                other => panic!("{name}: there is no {other:?}"),
            }
        }
        scenario.end.sort();
        scenario
    }
}

impl Show {
    /// The line that an object is shown by, where it is.
    pub fn line(&self, object: &Value) -> Option<String> {
        let has = |label: &str| !object["metadata"]["labels"][label].is_null();
        if self.label.as_ref().is_some_and(|(wanted, label)| has(label) != *wanted) {
            return None;
        }
        let plural = self.path.rsplit('/').next().unwrap_or_default();
        let words = self.pointers.iter().map(|pointer| match pointer.strip_prefix('?') {
            Some(pointer) => if find(object, pointer).is_some() { "yes" } else { "no" }.to_owned(),
            None => match find(object, pointer) {
                None => "-".to_owned(),
                Some(Value::String(text)) => text.clone(),
                Some(Value::Array(list)) => list.len().to_string(),
                Some(other) => other.to_string(),
            },
        });
        Some(std::iter::once(plural.to_owned()).chain(words).collect::<Vec<_>>().join(" "))
    }
}

/// A JSON pointer whose parts may also be `[field=value]`.
fn find<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(object, |value, part| {
        match part.strip_prefix('[').and_then(|part| part.strip_suffix(']')).and_then(|part| part.split_once('=')) {
            Some((field, wanted)) => value.as_array()?.iter().find(|item| item[field] == wanted),
            None => value.pointer(&format!("/{part}")),
        }
    })
}
