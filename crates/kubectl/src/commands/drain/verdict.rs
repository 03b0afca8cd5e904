//! Decides for each pod of a node whether drain evicts it, skips it, or fails.

use serde_json::Value;

/// What is to happen to a pod of the node.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Evict,
    /// Evict, but say so.
    Warn(&'static str),
    Leave,
    LeaveAndWarn(&'static str),
    Refuse(&'static str),
}

/// What the user allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) force: bool,
    pub(super) ignore_daemon_sets: bool,
    pub(super) delete_data: bool,
}

const UNMANAGED: &str = "cannot delete Pods that declare no controller (use --force to override)";
const DAEMON: &str = "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore)";
const LOCAL: &str = "cannot delete Pods with local storage (use --delete-emptydir-data to override)";

/// `daemon_gone` is set where the DaemonSet that owned the pod is no longer there.
pub(super) fn verdict(pod: &Value, options: Options, daemon_gone: bool) -> Verdict {
    let Options { force, ignore_daemon_sets, delete_data } = options;
    let metadata = &pod["metadata"];
    if metadata["annotations"]["kubernetes.io/config.mirror"].is_string() {
        return Verdict::Leave;
    }
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let owner = metadata["ownerReferences"].as_array().into_iter().flatten().find(|owner| owner["controller"] == true);
    let mut verdict = Verdict::Evict;
    match owner {
        Some(owner) if owner["kind"] == "DaemonSet" && !finished => {
            if daemon_gone {
                return if force {
                    Verdict::Warn("deleting Pods that declare no controller")
                } else {
                    Verdict::Refuse(UNMANAGED)
                };
            }
            return if ignore_daemon_sets {
                Verdict::LeaveAndWarn("ignoring DaemonSet-managed Pods")
            } else {
                Verdict::Refuse(DAEMON)
            };
        }
        None if !finished => {
            if !force {
                return Verdict::Refuse(UNMANAGED);
            }
            verdict = Verdict::Warn("deleting Pods that declare no controller");
        }
        _ => {}
    }
    let local = pod["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| volume["emptyDir"].is_object());
    if local && !finished {
        if !delete_data {
            return Verdict::Refuse(LOCAL);
        }
        return Verdict::Warn("deleting Pods with local storage");
    }
    verdict
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(owner: &str, phase: &str, volume: bool) -> Value {
        let mut pod = json!({"metadata": {}, "status": {"phase": phase}, "spec": {}});
        if !owner.is_empty() {
            pod["metadata"]["ownerReferences"] = json!([{"kind": owner, "controller": true}]);
        }
        if volume {
            pod["spec"]["volumes"] = json!([{"emptyDir": {}}]);
        }
        pod
    }

    const NOTHING: Options = Options { force: false, ignore_daemon_sets: false, delete_data: false };

    #[test]
    fn pods_of_a_controller_go() {
        assert_eq!(verdict(&pod("ReplicaSet", "Running", false), NOTHING, false), Verdict::Evict);
        assert_eq!(verdict(&pod("", "Failed", false), NOTHING, false), Verdict::Evict);
    }

    #[test]
    fn pods_that_nobody_makes_again_need_force() {
        let lone = pod("", "Running", false);
        assert_eq!(verdict(&lone, NOTHING, false), Verdict::Refuse(UNMANAGED));
        assert!(matches!(verdict(&lone, Options { force: true, ..NOTHING }, false), Verdict::Warn(_)));
        let orphan = pod("DaemonSet", "Running", false);
        assert_eq!(verdict(&orphan, NOTHING, true), Verdict::Refuse(UNMANAGED));
        assert!(matches!(verdict(&orphan, Options { force: true, ..NOTHING }, true), Verdict::Warn(_)));
    }

    #[test]
    fn pods_of_daemon_sets_stay() {
        let daemon = pod("DaemonSet", "Running", false);
        assert_eq!(verdict(&daemon, NOTHING, false), Verdict::Refuse(DAEMON));
        let ignore = Options { ignore_daemon_sets: true, ..NOTHING };
        assert!(matches!(verdict(&daemon, ignore, false), Verdict::LeaveAndWarn(_)));
    }

    #[test]
    fn data_is_lost_only_where_that_is_allowed() {
        let keeper = pod("ReplicaSet", "Running", true);
        assert_eq!(verdict(&keeper, NOTHING, false), Verdict::Refuse(LOCAL));
        assert!(matches!(verdict(&keeper, Options { delete_data: true, ..NOTHING }, false), Verdict::Warn(_)));
        assert_eq!(verdict(&pod("ReplicaSet", "Succeeded", true), NOTHING, false), Verdict::Evict);
    }

    #[test]
    fn mirrors_of_static_pods_are_left_alone() {
        let mut mirror = pod("Node", "Running", true);
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        assert_eq!(verdict(&mirror, NOTHING, false), Verdict::Leave);
    }
}
