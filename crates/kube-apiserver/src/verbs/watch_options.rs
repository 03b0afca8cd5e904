//! What a watch was asked for: where it begins, whether it wants bookmarks, how long it lives.

use std::time::Duration;

use machinery::field::{Errors, FieldError, Problem};
use machinery::status::Status;
use rand::Rng;
use store::Revision;

use super::get::revision;
use crate::call::Call;

/// How long a watch without a timeout lives: this and up to as much again, so that they do not all end at once.
const LIFETIME_MIN: Duration = Duration::from_secs(30 * 60);

pub struct Options {
    pub start: Begin,
    pub bookmarks: bool,
    /// A bookmark marks the end of the initial state.
    pub mark_initial_end: bool,
    pub lifetime: Duration,
}

pub enum Begin {
    /// The state first, as added objects, then changes.
    State(Option<Revision>),
    Now,
    After(Revision),
}

impl Options {
    pub fn read(call: &Call) -> Result<Options, Status> {
        let query = &call.query;
        let bookmarks = query.flag("allowWatchBookmarks");
        let how = query.get("resourceVersionMatch");
        let forbidden = |field: &str, detail: &str| {
            let mut errors = Errors::default();
            errors.push(FieldError::new(Problem::Forbidden, field, "", detail));
            Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors))
        };
        let version = revision(query.get("resourceVersion"))?;
        let initial = query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents"));
        if initial.is_some() && how != "NotOlderThan" {
            return forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        if initial.is_none() && !how.is_empty() {
            return forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            );
        }
        let start = match (initial, version) {
            (Some(true), Some(Revision(0))) => Begin::State(Some(Revision(0))),
            (Some(true), at_least) => Begin::State(at_least),
            (Some(false), None | Some(Revision(0))) => Begin::Now,
            (None, None) => Begin::State(None),
            (None, Some(Revision(0))) => Begin::State(Some(Revision(0))),
            (_, Some(revision)) => Begin::After(revision),
        };
        let lifetime = match query.number("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds as u64),
            _ => LIFETIME_MIN.mul_f64(rand::rng().random_range(1.0..2.0)),
        };
        Ok(Options { start, bookmarks, mark_initial_end: initial == Some(true) && bookmarks, lifetime })
    }
}
