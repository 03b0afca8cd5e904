//! Decides for each pod of a node whether drain evicts it, skips it, or fails: upstream's filters, in their order. What one filter
//! warns of is forgotten where a later one lets the pod go, as upstream does.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// What is to happen to a pod of the node.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Evict,
    /// Evict, but say so.
    Warn(&'static str),
    Leave,
    LeaveAndWarn(&'static str),
    Refuse(String),
}

/// What the user allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) force: bool,
    pub(super) ignore_daemon_sets: bool,
    pub(super) delete_data: bool,
    /// Pods that are being deleted for longer than so many seconds do not count; 0 for all.
    pub(super) skip_deleted_seconds: i64,
}

/// The DaemonSet that owns a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Daemon {
    There,
    /// It is gone, in the server's words.
    Gone(String),
    /// It could not be asked for.
    Unknown(String),
}

const UNMANAGED: &str = "Pods that declare no controller (use --force to override)";
const DAEMON: &str = "DaemonSet-managed Pods (use --ignore-daemonsets to ignore)";
const LOCAL: &str = "Pods with local storage (use --delete-emptydir-data to override)";

fn refuse(why: &str) -> Verdict {
    Verdict::Refuse(format!("cannot delete {why}"))
}

/// The name of the DaemonSet that a pod must be asked about.
pub(super) fn daemon_of(pod: &Value) -> Option<&str> {
    let owner = controller(pod)?;
    let is_one = owner["kind"] == "DaemonSet" && owner["apiVersion"] == "apps/v1" && !is_finished(pod);
    owner["name"].as_str().filter(|_| is_one)
}

fn controller(pod: &Value) -> Option<&Value> {
    pod["metadata"]["ownerReferences"].as_array().into_iter().flatten().find(|owner| owner["controller"] == true)
}

fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether a pod is being deleted for so long that nobody need wait for it.
pub(super) fn is_stuck(pod: &Value, options: Options, now: Timestamp) -> bool {
    let deleted = pod["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let late = |deleted: Timestamp| now.as_second() - deleted.as_second() > options.skip_deleted_seconds;
    options.skip_deleted_seconds > 0 && deleted.is_some_and(late)
}

/// How long it will take at least until that is so; nothing for a pod that nobody deletes.
pub(super) fn stuck_in(pod: &Value, options: Options, now: Timestamp) -> Duration {
    let deleted = pod["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let left = |deleted: Timestamp| deleted.as_second() + options.skip_deleted_seconds + 1 - now.as_second();
    Duration::from_secs(deleted.map_or(0, left).try_into().unwrap_or(0))
}

/// `daemon` is what is known of the DaemonSet that [`daemon_of`] names.
pub(super) fn verdict(pod: &Value, options: Options, daemon: Option<&Daemon>, now: Timestamp) -> Verdict {
    if is_stuck(pod, options, now) {
        return Verdict::Leave;
    }
    match daemon {
        None => {}
        Some(Daemon::Gone(_)) if options.force => {}
        Some(Daemon::Gone(why) | Daemon::Unknown(why)) => return refuse(why),
        Some(Daemon::There) if options.ignore_daemon_sets => {
            return Verdict::LeaveAndWarn("ignoring DaemonSet-managed Pods");
        }
        Some(Daemon::There) => return refuse(DAEMON),
    }
    if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string() {
        return Verdict::Leave;
    }
    if is_finished(pod) {
        return Verdict::Evict;
    }
    let local = pod["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| volume["emptyDir"].is_object());
    match controller(pod) {
        _ if local && !options.delete_data => refuse(LOCAL),
        Some(_) => Verdict::Evict,
        None if options.force => Verdict::Warn("deleting Pods that declare no controller"),
        None => refuse(UNMANAGED),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(owner: &str, phase: &str, volume: bool) -> Value {
        let mut pod = json!({"metadata": {}, "status": {"phase": phase}, "spec": {}});
        if !owner.is_empty() {
            pod["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": owner, "name": "owner", "controller": true}]);
        }
        if volume {
            pod["spec"]["volumes"] = json!([{"emptyDir": {}}]);
        }
        pod
    }

    const NOTHING: Options =
        Options { force: false, ignore_daemon_sets: false, delete_data: false, skip_deleted_seconds: 0 };
    const FORCE: Options = Options { force: true, ..NOTHING };
    const DATA: Options = Options { delete_data: true, ..NOTHING };

    #[track_caller]
    fn check(pod: &Value, options: Options, expected: Verdict) {
        assert_eq!(verdict(pod, options, None, Timestamp::UNIX_EPOCH), expected, "{pod} {options:?}");
    }

    #[test]
    fn pods_of_a_controller_go() {
        check(&pod("ReplicaSet", "Running", false), NOTHING, Verdict::Evict);
        check(&pod("Custom", "Pending", false), NOTHING, Verdict::Evict);
        for phase in ["Succeeded", "Failed"] {
            check(&pod("", phase, true), NOTHING, Verdict::Evict);
        }
    }

    #[test]
    fn pods_that_nobody_makes_again_need_force() {
        let lone = pod("", "Running", false);
        check(&lone, NOTHING, refuse(UNMANAGED));
        check(&lone, FORCE, Verdict::Warn("deleting Pods that declare no controller"));
        let mut owned = pod("ReplicaSet", "Running", false);
        owned["metadata"]["ownerReferences"][0]["controller"] = false.into();
        check(&owned, NOTHING, refuse(UNMANAGED));
    }

    #[test]
    fn data_is_lost_only_where_that_is_allowed() {
        check(&pod("ReplicaSet", "Running", true), NOTHING, refuse(LOCAL));
        check(&pod("ReplicaSet", "Running", true), DATA, Verdict::Evict);
        // Data are looked at first, and owners have the last word.
        let lone = pod("", "Running", true);
        check(&lone, NOTHING, refuse(LOCAL));
        check(&lone, FORCE, refuse(LOCAL));
        check(&lone, DATA, refuse(UNMANAGED));
        let both = Options { force: true, ..DATA };
        check(&lone, both, Verdict::Warn("deleting Pods that declare no controller"));
    }

    #[test]
    fn pods_of_daemon_sets_stay() {
        let daemon = pod("DaemonSet", "Running", true);
        assert_eq!(daemon_of(&daemon), Some("owner"));
        let judged =
            |options: Options, daemon_set: &Daemon| verdict(&daemon, options, Some(daemon_set), Timestamp::UNIX_EPOCH);
        assert_eq!(judged(NOTHING, &Daemon::There), refuse(DAEMON));
        assert_eq!(judged(FORCE, &Daemon::There), refuse(DAEMON));
        let ignore = Options { ignore_daemon_sets: true, ..NOTHING };
        assert_eq!(judged(ignore, &Daemon::There), Verdict::LeaveAndWarn("ignoring DaemonSet-managed Pods"));
        let why = "daemonsets.apps \"owner\" not found";
        let gone = Daemon::Gone(why.into());
        assert_eq!(judged(ignore, &gone), Verdict::Refuse(format!("cannot delete {why}")));
        assert_eq!(judged(FORCE, &gone), refuse(LOCAL), "it goes on to what comes next");
        assert_eq!(judged(Options { force: true, ..DATA }, &gone), Verdict::Evict);
        let unknown = Daemon::Unknown("forbidden".into());
        assert_eq!(judged(FORCE, &unknown), Verdict::Refuse("cannot delete forbidden".into()));
    }

    #[test]
    fn only_daemon_sets_of_apps_are_asked_for() {
        assert_eq!(daemon_of(&pod("DaemonSet", "Succeeded", false)), None);
        assert_eq!(daemon_of(&pod("ReplicaSet", "Running", false)), None);
        let mut other = pod("DaemonSet", "Running", false);
        other["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1".into();
        assert_eq!(daemon_of(&other), None);
    }

    #[test]
    fn mirrors_of_static_pods_are_left_alone() {
        let mut mirror = pod("Node", "Running", true);
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        check(&mirror, NOTHING, Verdict::Leave);
    }

    #[test]
    fn pods_that_do_not_go_are_left_alone() {
        let mut stuck = pod("", "Running", true);
        stuck["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:40Z".into();
        let skip = |seconds: i64| Options { skip_deleted_seconds: seconds, ..NOTHING };
        let at = |second: i64, options: Options| {
            verdict(&stuck, options, None, Timestamp::from_second(second).expect("a time"))
        };
        assert_eq!(at(161, skip(60)), Verdict::Leave);
        assert_eq!(at(160, skip(60)), refuse(LOCAL));
        assert_eq!(at(9999, skip(0)), refuse(LOCAL));
        let left = |second: i64, pod: &Value| {
            stuck_in(pod, skip(60), Timestamp::from_second(second).expect("a time")).as_secs()
        };
        assert_eq!([left(100, &stuck), left(160, &stuck), left(500, &stuck)], [61, 1, 0]);
        assert_eq!(left(100, &pod("", "Running", false)), 0);
    }
}
