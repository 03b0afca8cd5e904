//! Which admission plugins run, by upstream's rules: some run by default, others when they are named.

use std::collections::BTreeSet;

use anyhow::bail;

/// Of ours, those that upstream runs only when they are named.
const ON_DEMAND: [&str; 1] = ["NodeRestriction"];

/// Upstream's that knarr does not have.
const MISSING: [&str; 14] = [
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
    "NodeDeclaredFeatureValidator",
];

/// The plugins that do not run.
pub fn off(enabled: &[String], disabled: &[String]) -> anyhow::Result<BTreeSet<String>> {
    let ours = kube_apiserver::admission_plugins();
    for name in enabled.iter().chain(disabled) {
        let known = ours.contains(&name.as_str());
        let missing = MISSING.contains(&name.as_str()) && !known;
        if !known && !missing {
            bail!("there is no admission plugin {name:?}");
        }
        if missing && enabled.contains(name) {
            bail!("--enable-admission-plugins: knarr does not have the admission plugin {name}");
        }
        if enabled.contains(name) && disabled.contains(name) {
            bail!("the admission plugin {name} is both enabled and disabled");
        }
    }
    let named = |list: &[String], name: &str| list.iter().any(|one| one == name);
    let is_off = |name: &&str| named(disabled, name) || (ON_DEMAND.contains(name) && !named(enabled, name));
    Ok(ours.into_iter().filter(is_off).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_chosen_by_upstreams_rules() {
        let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let check = |enabled: &str, disabled: &str, expected: Result<&str, &str>| {
            let found = off(&words(enabled), &words(disabled));
            let found = found.map(|names| names.into_iter().collect::<Vec<_>>().join(" ")).map_err(|e| e.to_string());
            assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{enabled} / {disabled}");
        };
        check("", "", Ok("NodeRestriction"));
        check("NodeRestriction", "", Ok(""));
        check("NodeRestriction", "LimitRanger ResourceQuota", Ok("LimitRanger ResourceQuota"));
        check("LimitRanger", "", Ok("NodeRestriction"));
        check("", "AlwaysPullImages", Ok("NodeRestriction"));
        check(
            "AlwaysPullImages",
            "",
            Err("--enable-admission-plugins: knarr does not have the admission plugin AlwaysPullImages"),
        );
        check("Nonsense", "", Err("there is no admission plugin \"Nonsense\""));
        check("LimitRanger", "LimitRanger", Err("the admission plugin LimitRanger is both enabled and disabled"));
    }
}
