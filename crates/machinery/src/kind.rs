//! The entry of one kind in the table of kinds. Routes, discovery, storage, columns and tests are computed from it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::Value;

use crate::field::Errors;
use crate::names;
use crate::node::Node;
use crate::object::Meta;
use crate::table::{Cell, Column};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// Where a kind's rules differ from the common behaviour, its entry says so; the rest comes from `Kind::COMMON`.
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    /// The definition of the kind's type, from which schema, OpenAPI, merge keys and strict decoding come.
    pub schema: &'static str,
    /// The part of the storage key after `/registry/`, where upstream keeps it: `minions` for nodes.
    pub storage: &'static str,
    /// Set where this version is not the one that is stored.
    pub convert: Option<Convert>,
    /// The rule for `metadata.name`; an empty answer means the name is good.
    pub name_rule: fn(name: &str) -> Vec<String>,
    /// Whether `metadata.generation` counts changes of everything but metadata and status.
    pub generation: bool,
    /// A PUT to a name that is not there creates it.
    pub create_on_update: bool,
    /// A PUT without resourceVersion overwrites; otherwise it must name one.
    pub unconditional_update: bool,
    /// What DELETE without a propagation policy does with dependents.
    pub orphan_by_default: bool,
    /// DELETE answers with the object that went, not with a Status.
    pub delete_returns_object: bool,
    /// Set for kinds that end gracefully: the seconds that an object has, where a request to delete it asks for so many.
    pub grace_period: Option<fn(object: &Value, asked: Option<i64>) -> i64>,
    /// What is said of an object whose deletion began without a grace period.
    pub begin_deletion: fn(&mut Value),
    /// Whether more than finalizers of its metadata keeps an object that is being deleted.
    pub held: fn(&Value) -> bool,
    /// Objects vanish some time after they were last written.
    pub expires: bool,
    pub defaults: fn(&mut Value),
    /// Once, before an object is first stored: what the server sets or wipes.
    pub prepare_create: fn(&mut Value),
    /// Before a changed object is stored: what the user may not change is taken from `old`.
    pub prepare_update: fn(new: &mut Value, old: &Value),
    /// The same for a write to `status`; `new` already has old's spec and protected metadata.
    pub prepare_status: fn(new: &mut Value, old: &Value),
    /// After these, for kinds that record who writes or when.
    pub sign: Option<fn(&mut Value, &Write)>,
    /// Fields that a write to `status` neither changes nor owns.
    pub status_keeps: &'static [&'static str],
    /// The same for fields of the metadata.
    pub status_keeps_metadata: &'static [&'static str],
    /// Defaults of the status do not look at the rest of the object, so that a patch of the status need not, either.
    pub status_alone: bool,
    pub validate: fn(&Node, &mut Errors),
    pub validate_update: fn(new: &Node, old: &Node, errors: &mut Errors),
    pub validate_status: fn(new: &Node, old: &Node, errors: &mut Errors),
    /// Validation may compute for long, so it runs once, and not first without the paths to fields.
    pub slow_validation: bool,
    /// Sentences for `Warning` headers.
    pub warnings: fn(new: &Value, old: Option<&Value>) -> Vec<String>,
    /// Fields that a field selector may name beside `metadata.name` and `metadata.namespace`.
    pub selectable: &'static [Selectable],
    pub columns: &'static [Column],
    pub row: fn(&Value, Timestamp) -> Vec<Cell>,
}

/// What only the server knows of a write.
pub struct Write<'a> {
    /// None for a new object.
    pub old: Option<&'a Value>,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub now: &'a str,
    pub user: &'a str,
    pub uid: &'a str,
    pub groups: &'a [String],
    pub extra: &'a BTreeMap<String, Vec<String>>,
    /// Where the request came from; nowhere where a part of the server's process asks.
    pub source: Option<IpAddr>,
}

pub struct Subresource {
    pub name: &'static str,
    pub kind: &'static str,
    /// Empty for the group and version of the parent.
    pub group: &'static str,
    pub version: &'static str,
    pub verbs: &'static [&'static str],
}

impl Subresource {
    pub const fn status(kind: &'static str) -> Subresource {
        Subresource { name: "status", kind, group: "", version: "", verbs: &["get", "patch", "update"] }
    }

    /// `scale` of the workload kinds.
    pub const SCALE: Subresource = Subresource {
        name: "scale",
        kind: "Scale",
        group: "autoscaling",
        version: "v1",
        verbs: &["get", "patch", "update"],
    };
}

pub struct Convert {
    /// The version that is stored, of the same group unless `group` says otherwise.
    pub group: &'static str,
    pub version: &'static str,
    pub to_storage: fn(Value) -> Value,
    pub from_storage: fn(Value) -> Value,
}

pub struct Selectable {
    pub field: &'static str,
    pub read: fn(&Value) -> String,
}

pub(crate) const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl Kind {
    /// The common behaviour: every verb, no defaults, nothing refused, name and age as columns.
    pub const COMMON: Kind = Kind {
        group: "",
        version: "v1",
        kind: "",
        plural: "",
        singular: "",
        short_names: &[],
        categories: &[],
        scope: Scope::Namespaced,
        verbs: ALL_VERBS,
        subresources: &[],
        schema: "",
        storage: "",
        convert: None,
        name_rule: names::dns_subdomain,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        orphan_by_default: false,
        delete_returns_object: false,
        grace_period: None,
        begin_deletion: |object| {
            object.meta_mut().insert("deletionGracePeriodSeconds".into(), 0.into());
        },
        held: |_| false,
        expires: false,
        defaults: |_| {},
        prepare_create: |_| {},
        prepare_update: |_, _| {},
        prepare_status: |_, _| {},
        sign: None,
        status_keeps: &["spec"],
        status_keeps_metadata: &["ownerReferences", "finalizers"],
        status_alone: false,
        validate: |_, _| {},
        validate_update: |_, _, _| {},
        validate_status: |_, _, _| {},
        slow_validation: false,
        warnings: |_, _| Vec::new(),
        selectable: &[],
        columns: NAME_AND_AGE,
        row: |object, now| vec![crate::object::Meta::name(object).into(), age(object, now)],
    };

    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}

pub(crate) const NAME_AND_AGE: &[Column] = &[Column::name(""), Column::new("Age", "string", 0)];

/// The age of an object as `kubectl get` shows it.
pub fn age(object: &Value, now: Timestamp) -> Cell {
    let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    since(created.unwrap_or(""), now).into()
}

/// How long ago a time was, as `kubectl get` shows it: `5s`, `3m4s`, `2d3h`, `<unknown>` where there is no time.
pub fn since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => human_duration(now.as_second() - time.as_second()),
        Err(_) => "<unknown>".into(),
    }
}

/// Two units at most, as upstream's HumanDuration rounds them.
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let pair = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..0 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(hours / 24, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{}d", hours / 24),
        63_072_000..252_288_000 => pair(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_as_people_read_them() {
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (70, "70s"),
            (119, "119s"),
            (120, "2m"),
            (190, "3m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (70 * 60, "70m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 60, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR, "8h"),
            (47 * HOUR, "47h"),
            (49 * HOUR, "2d1h"),
            (2 * DAY, "2d"),
            (8 * DAY + 2 * HOUR, "8d"),
            (367 * DAY, "367d"),
            (730 * DAY, "2y"),
            (730 * DAY + 25 * HOUR, "2y1d"),
            (8 * 365 * DAY + 2 * HOUR, "8y"),
            (20 * 365 * DAY, "20y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn ages() {
        let now: Timestamp = "2030-01-01T00:01:30Z".parse().unwrap();
        let object = serde_json::json!({"metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"}});
        assert_eq!(Value::from(vec![age(&object, now)]), serde_json::json!(["90s"]));
        assert_eq!(Value::from(vec![age(&Value::Null, now)]), serde_json::json!(["<unknown>"]));
        assert_eq!(since("no time", now), "<unknown>");
        // Clocks of nodes are a little apart.
        assert_eq!(since("2030-01-01T00:01:31Z", now), "0s");
        assert_eq!(since("2030-01-01T00:02:00Z", now), "<invalid>");
    }
}
