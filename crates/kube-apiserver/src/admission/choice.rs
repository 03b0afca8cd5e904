//! Which admission plugins run: all by default but those that an operator must name, less those that an operator turns off.

use super::plugins;
use crate::options::Options;

/// What all servers do, under names that no operator knows.
const ALWAYS: [&str; 6] = [
    "RBACEscalation",
    "AllowPrivileged",
    "DRAAdminAccess",
    "PodCertificateRequestSigning",
    "DRAResourceClaimGranularStatusAuthorization",
    "ParamAccess",
];

/// Those that run only where an operator names them.
const ON_DEMAND: [&str; 13] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// The plugins that an operator can turn on and off, in the order they run.
pub fn names() -> Vec<&'static str> {
    let names = plugins(&Options::default()).into_iter().map(|plugin| plugin.name());
    names.filter(|name| !ALWAYS.contains(name)).collect()
}

/// Those that run only where an operator names them, as upstream.
pub fn is_on_demand(name: &str) -> bool {
    ON_DEMAND.contains(&name)
}

pub(super) fn is_on(options: &Options, name: &str) -> bool {
    !options.admission_off.contains(name) && (!is_on_demand(name) || options.admission_on.contains(name))
}

/// Those that run with these options, and those that do not.
pub(crate) fn on_and_off(options: &Options) -> (Vec<&'static str>, Vec<&'static str>) {
    names().into_iter().partition(|name| is_on(options, name))
}
