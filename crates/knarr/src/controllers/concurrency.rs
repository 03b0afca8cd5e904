//! How many objects each controller works on at the same time, under upstream's names.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// Flags, and the controllers they are about. Without a flag a controller has as many workers as upstream's.
macro_rules! flags {
    ($($field:ident => $controller:literal, $what:literal;)*) => {
        #[derive(clap::Args, Clone, Default)]
        #[group(skip)]
        pub struct Flags {
            $(
                #[doc = concat!("How many ", $what, " are worked on at the same time.")]
                #[arg(long, value_name = "COUNT")]
                $field: Option<NonZeroUsize>,
            )*
        }

        impl Flags {
            /// By the controller's name, where a flag was given.
            pub fn workers(&self) -> BTreeMap<&'static str, NonZeroUsize> {
                [$(($controller, self.$field)),*].into_iter().filter_map(|(name, count)| Some((name, count?))).collect()
            }
        }

        #[cfg(test)]
        const CONTROLLERS: &[&str] = &[$($controller),*];
    };
}

flags! {
    concurrent_cron_job_syncs => "cronjob-controller", "cron jobs";
    concurrent_daemonset_syncs => "daemonset-controller", "DaemonSets";
    concurrent_deployment_syncs => "deployment-controller", "Deployments";
    concurrent_device_taint_eviction_syncs => "device-taint-eviction-controller", "claims with tainted devices";
    concurrent_endpoint_syncs => "endpoints-controller", "Services' Endpoints";
    concurrent_service_endpoint_syncs => "endpointslice-controller", "Services' EndpointSlices";
    mirroring_concurrent_service_endpoint_syncs => "endpointslice-mirroring-controller", "mirrored Endpoints";
    concurrent_ephemeralvolume_syncs => "ephemeral-volume-controller", "pods with ephemeral volumes";
    concurrent_gc_syncs => "garbage-collector-controller", "objects to collect";
    concurrent_horizontal_pod_autoscaler_syncs => "horizontal-pod-autoscaler-controller", "autoscalers";
    concurrent_job_syncs => "job-controller", "jobs";
    concurrent_namespace_syncs => "namespace-controller", "ending namespaces";
    concurrent_rc_syncs => "replicationcontroller-controller", "ReplicationControllers";
    concurrent_replicaset_syncs => "replicaset-controller", "ReplicaSets";
    concurrent_resourceclaim_syncs => "resourceclaim-controller", "resource claims";
    concurrent_resource_quota_syncs => "resourcequota-controller", "quotas";
    concurrent_serviceaccount_token_syncs => "serviceaccount-token-controller", "tokens in Secrets";
    concurrent_statefulset_syncs => "statefulset-controller", "StatefulSets";
    concurrent_ttl_after_finished_syncs => "ttl-after-finished-controller", "finished jobs";
    concurrent_validating_admission_policy_status_syncs =>
        "validatingadmissionpolicy-status-controller", "admission policies";
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn flags_are_about_controllers_that_there_are() {
        let known: Vec<&str> = kube_controller_manager::CONTROLLERS.iter().map(|controller| controller.name).collect();
        for name in CONTROLLERS {
            assert!(known.contains(name), "{name}");
        }
        let flags = Given::parse_from(["x", "--concurrent-job-syncs=7", "--concurrent-gc-syncs", "30"]).flags;
        let workers: Vec<(&str, usize)> =
            flags.workers().into_iter().map(|(name, count)| (name, count.get())).collect();
        assert_eq!(workers, [("garbage-collector-controller", 30), ("job-controller", 7)]);
        assert!(Given::try_parse_from(["x", "--concurrent-job-syncs=0"]).is_err());
    }
}
