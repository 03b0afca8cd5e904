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
    let before = old.map(|old| &old["spec"]);
    if spec_text(&service["spec"], "type") == "ExternalName" || keeps_prefer_dual_stack(&service["spec"], before) {
        return Ok(());
    }
    choose_policy(&mut service["spec"], before);
    let mut errors = Errors::default();
    validate::cluster_ips(&Node::root(service).at("spec"), &[], &mut errors);
    refuse(errors)?;

    let spec = &mut service["spec"];
    let mut errors = Errors::default();
    if let Some(before) = before {
        release_secondary(spec, before, &mut errors);
    }
    policy_conflicts(spec, &mut errors);
    infer_families(spec, cluster, &mut errors);
    refuse(errors)?;

    // A headless Service without selector has addresses of somebody else's making, in any family.
    let free = is_headless(spec) && !has_selector(spec);
    if !free {
        refuse(cluster_conflicts(spec, cluster))?;
    }
    if list(spec, "ipFamilies").is_empty() {
        spec["ipFamilies"] = json!(cluster.iter().take(1).collect::<Vec<_>>());
    }
    if policy(spec) != "SingleStack" && (free || cluster.len() > 1) {
        add_second_family(spec);
    }
    Ok(())
}

fn refuse(errors: Errors) -> Result<(), Errors> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn policy(spec: &Value) -> &str {
    spec_text(spec, "ipFamilyPolicy")
}

fn has_selector(spec: &Value) -> bool {
    spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty())
}

/// What the user left open stays as it was, so that nothing changes between one and two stacks by itself.
fn choose_policy(spec: &mut Value, before: Option<&Value>) {
    if !policy(spec).is_empty() {
        return;
    }
    let policy = match before.map(policy) {
        Some(policy) if !policy.is_empty() => policy,
        _ if is_headless(spec) && !has_selector(spec) => "RequireDualStack",
        _ => "SingleStack",
    };
    spec["ipFamilyPolicy"] = policy.into();
}

/// A Service that prefers two stacks is not upgraded or downgraded because the cluster changed.
fn keeps_prefer_dual_stack(after: &Value, before: Option<&Value>) -> bool {
    let Some(before) = before else { return false };
    let same = |field: &str| list(after, field) == list(before, field);
    policy(after) == "PreferDualStack"
        && policy(before) == "PreferDualStack"
        && spec_text(after, "type") == spec_text(before, "type")
        && same("clusterIPs")
        && same("ipFamilies")
}

/// Asking for a single stack gives the second family back; taking it away without asking is refused.
fn release_secondary(after: &mut Value, before: &Value, errors: &mut Errors) {
    let single = policy(after) == "SingleStack";
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (new, old) = (list(after, field), list(before, field));
        if single && new.len() > 1 && new == old {
            after[field] = json!([new[0]]);
        } else if !single && !new.is_empty() && new.first() == old.first() && new.len() < old.len() {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            errors.invalid_value(&Path::new("spec").child("ipFamilyPolicy"), &after["ipFamilyPolicy"], detail);
        }
    }
}

fn policy_conflicts(spec: &Value, errors: &mut Errors) {
    for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if policy(spec) == "SingleStack" && list(spec, field).len() == 2 {
            let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.invalid_value(&Path::new("spec").child("ipFamilyPolicy"), &spec["ipFamilyPolicy"], detail);
        }
    }
}

/// The families of given addresses are known from the addresses.
fn infer_families(spec: &mut Value, cluster: &[&str], errors: &mut Errors) {
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
            let detail = format!("{family} is not configured on this cluster");
            errors.invalid_value(&Path::new("spec").child("clusterIPs").index(index), &spec["clusterIPs"], detail);
        }
    }
    if !families.is_empty() {
        spec["ipFamilies"] = families.into();
    }
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
