//! Which IP families a Service gets, from what the user asked and what the cluster has. Pure; the allocator calls
//! `choose` before it takes addresses.

use machinery::field::{Errors, Path};
use machinery::node::Node;
use serde_json::{Value, json};

use super::strategy::{is_headless, list, spec_text};
use super::validate;

/// Fills `ipFamilies` and `ipFamilyPolicy`. `cluster` holds the families of the cluster's Service ranges, `IPv4` or
/// `IPv6`, the default one first.
pub fn choose(service: &mut Value, old: Option<&Value>, cluster: &[&str]) -> Result<(), Errors> {
    if spec_text(&service["spec"], "type") == "ExternalName" || keeps_prefer_dual_stack(service, old) {
        return Ok(());
    }
    if let Some(old) = old {
        release_secondary(service, old);
    }
    let mut errors = Errors::default();
    validate::cluster_ips(&Node::root(service).at("spec"), &mut errors);
    refuse(errors)?;

    let spec = &mut service["spec"];
    refuse(policy_conflicts(spec))?;
    refuse(infer_families(spec, cluster))?;
    let families = list(spec, "ipFamilies").len();

    // A headless Service without selector has addresses of somebody else's making, in any family.
    if is_headless(spec)
        && spec.get("selector").is_none_or(|selector| selector.as_object().is_none_or(|map| map.is_empty()))
    {
        if families == 0 {
            spec["ipFamilies"] = json!(cluster.iter().take(1).collect::<Vec<_>>());
        }
        if spec_text(spec, "ipFamilyPolicy").is_empty() {
            spec["ipFamilyPolicy"] = "RequireDualStack".into();
        }
        if policy(spec) != "SingleStack" {
            add_second_family(spec);
        }
        return Ok(());
    }

    refuse(cluster_conflicts(spec, cluster))?;
    if families == 0 {
        spec["ipFamilies"] = json!(cluster.iter().take(1).collect::<Vec<_>>());
    }
    if spec_text(spec, "ipFamilyPolicy").is_empty() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
    if policy(spec) != "SingleStack" && cluster.len() > 1 {
        add_second_family(spec);
    }
    Ok(())
}

fn refuse(errors: Errors) -> Result<(), Errors> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// No policy means a single stack.
fn policy(spec: &Value) -> &str {
    match spec_text(spec, "ipFamilyPolicy") {
        "" => "SingleStack",
        policy => policy,
    }
}

/// A Service that prefers two stacks is not upgraded or downgraded because the cluster changed.
fn keeps_prefer_dual_stack(new: &Value, old: Option<&Value>) -> bool {
    let Some(before) = old.map(|old| &old["spec"]) else { return false };
    let after = &new["spec"];
    let kept = ["type", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
    spec_text(after, "ipFamilyPolicy") == "PreferDualStack"
        && kept.iter().all(|field| after.get(field) == before.get(field))
}

/// Asking for a single stack gives the second family back, unless the user also changed the lists.
fn release_secondary(new: &mut Value, old: &Value) {
    let before = &old["spec"];
    let after = &mut new["spec"];
    if policy(after) != "SingleStack" || policy(before) == "SingleStack" {
        return;
    }
    for field in ["clusterIPs", "ipFamilies"] {
        if list(after, field).len() > 1 && list(after, field) == list(before, field) {
            after[field] = json!([list(after, field)[0]]);
        }
    }
}

fn policy_conflicts(spec: &Value) -> Errors {
    let mut errors = Errors::default();
    let path = Path::new("spec").child("ipFamilyPolicy");
    let shown = spec.get("ipFamilyPolicy").cloned().unwrap_or(Value::Null);
    for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if policy(spec) == "SingleStack" && list(spec, field).len() == 2 {
            let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.invalid_value(&path, &shown, detail);
        }
    }
    errors
}

/// The families of given addresses are known from the addresses.
fn infer_families(spec: &mut Value, cluster: &[&str]) -> Errors {
    let mut errors = Errors::default();
    let mut families = list(spec, "ipFamilies").to_vec();
    for (index, address) in list(spec, "clusterIPs").iter().enumerate() {
        let family = match address.as_str() {
            None | Some("None") => break,
            Some(address) if address.contains(':') => "IPv6",
            Some(_) => "IPv4",
        };
        if index < families.len() {
            continue;
        }
        if cluster.contains(&family) {
            families.push(family.into());
        } else {
            let detail = format!("may not use {family} on a cluster which is not configured for it");
            errors.invalid_value(&Path::new("spec").child("clusterIPs").index(index), &spec["clusterIPs"], detail);
        }
    }
    if !families.is_empty() {
        spec["ipFamilies"] = families.into();
    }
    errors
}

fn cluster_conflicts(spec: &Value, cluster: &[&str]) -> Errors {
    let mut errors = Errors::default();
    let path = Path::new("spec");
    if policy(spec) == "RequireDualStack" && cluster.len() < 2 {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid_value(&path.child("ipFamilyPolicy"), &spec["ipFamilyPolicy"], detail);
    }
    for (index, family) in list(spec, "ipFamilies").iter().enumerate() {
        if !family.as_str().is_some_and(|family| cluster.contains(&family)) {
            errors.invalid_value(&path.child("ipFamilies").index(index), family, "not configured on this cluster");
        }
    }
    errors
}

fn add_second_family(spec: &mut Value) {
    if let [only] = list(spec, "ipFamilies") {
        let other = if *only == "IPv4" { "IPv6" } else { "IPv4" };
        spec["ipFamilies"] = json!([only, other]);
    }
}
