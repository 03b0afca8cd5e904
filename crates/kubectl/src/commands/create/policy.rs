//! Small kinds: namespaces, accounts, quotas, priorities, disruption budgets.

use serde_json::{Map, Value, json};

use super::{DRY_RUN, GENERATED, VALIDATE, generated, name};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::session::Session;

pub(crate) static NAMESPACE: Command = Command {
    name: "namespace",
    aliases: &["ns"],
    short: "Create a namespace with the specified name.",
    usage: "NAME [options]",
    flags: &[GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(namespace(session))),
    ..Command::EMPTY
};
pub(crate) static SERVICE_ACCOUNT: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    short: "Create a service account with the specified name.",
    usage: "NAME [options]",
    flags: &[GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(service_account(session))),
    ..Command::EMPTY
};
pub(super) static QUOTA: Command = Command {
    name: "quota",
    aliases: &["resourcequota"],
    short: "Create a quota with the specified name.",
    usage: "NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [options]",
    flags: &[QUOTA_FLAGS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(quota(session))),
    ..Command::EMPTY
};
pub(super) static PRIORITY_CLASS: Command = Command {
    name: "priorityclass",
    aliases: &["pc"],
    short: "Create a priority class with the specified name.",
    usage: "NAME --value=VALUE --global-default=BOOL [options]",
    flags: &[PRIORITY_FLAGS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(priority_class(session))),
    ..Command::EMPTY
};
pub(super) static DISRUPTION_BUDGET: Command = Command {
    name: "poddisruptionbudget",
    aliases: &["pdb"],
    short: "Create a pod disruption budget with the specified name.",
    usage: "NAME --selector=SELECTOR --min-available=N [options]",
    flags: &[BUDGET_FLAGS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(disruption_budget(session))),
    ..Command::EMPTY
};

const QUOTA_FLAGS: &[Flag] =
    &[Flag::text("hard", "", "Limits, as resource=quantity."), Flag::text("scopes", "", "What the quota counts.")];
const PRIORITY_FLAGS: &[Flag] = &[
    Flag::integer("value", "0", "The priority."),
    Flag::switch("global-default", "For pods that name no class."),
    Flag::text("description", "", "What it is for."),
    Flag::text("preemption-policy", "PreemptLowerPriority", "PreemptLowerPriority or Never."),
];
const BUDGET_FLAGS: &[Flag] = &[
    Flag::text("selector", "", "Which pods it protects."),
    Flag::text("min-available", "", "How many must stay, as a number or a share."),
    Flag::text("max-unavailable", "", "How many may go, as a number or a share."),
];

async fn namespace(session: &Session) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name(session)?}});
    generated(session, object, "").await
}

async fn service_account(session: &Session) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name(session)?}});
    generated(session, object, "failed to create serviceaccount: ").await
}

async fn quota(session: &Session) -> Result<()> {
    let mut object =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name(session)?}, "spec": {}});
    let hard = session.flags.text("hard");
    if !hard.is_empty() {
        object["spec"]["hard"] = quantities(hard)?;
    }
    let scopes = session.flags.text("scopes");
    if !scopes.is_empty() {
        let scopes: Vec<&str> = scopes.split(',').collect();
        if scopes.contains(&"") {
            return Err(Failure::message("invalid resource quota scope \"\""));
        }
        object["spec"]["scopes"] = scopes.into();
    }
    generated(session, object, "failed to create quota: ").await
}

/// `cpu=1,memory=2Gi`.
pub(in crate::commands) fn quantities(text: &str) -> Result<Value> {
    let mut found = Map::new();
    for pair in text.split(',') {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::message(format!("Invalid argument syntax {pair}, expected <resource>=<value>")));
        };
        machinery::quantity::Quantity::parse(value).map_err(Failure::of)?;
        found.insert(key.trim().into(), value.into());
    }
    Ok(found.into())
}

async fn priority_class(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let mut object = json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name(session)?},
        "value": flags.integer("value"),
        "preemptionPolicy": flags.text("preemption-policy"),
    });
    if flags.on("global-default") {
        object["globalDefault"] = true.into();
    }
    if !flags.text("description").is_empty() {
        object["description"] = flags.text("description").into();
    }
    generated(session, object, "failed to create priorityclass: ").await
}

async fn disruption_budget(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let name = name(session)?;
    if flags.text("selector").is_empty() {
        return Err(Failure::message("a selector must be specified"));
    }
    let (least, most) = (flags.text("min-available"), flags.text("max-unavailable"));
    if least.is_empty() && most.is_empty() {
        return Err(Failure::message("one of min-available or max-unavailable must be specified"));
    }
    if !least.is_empty() && !most.is_empty() {
        return Err(Failure::message("min-available and max-unavailable cannot be both specified"));
    }
    let (key, value) = if least.is_empty() { ("maxUnavailable", most) } else { ("minAvailable", least) };
    let share = value.strip_suffix('%').unwrap_or(value);
    if share.is_empty() || !share.bytes().all(|byte| byte.is_ascii_digit()) {
        let flag = if least.is_empty() { "max-unavailable" } else { "min-available" };
        return Err(Failure::message(format!("invalid format specified for {flag}")));
    }
    let amount: Value = value.parse::<i64>().map(Value::from).unwrap_or_else(|_| value.into());
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": selector(flags.text("selector"))?, key: amount},
    });
    generated(session, object, "failed to create poddisruptionbudgets: ").await
}

/// A selector of labels as an object.
pub(in crate::commands) fn selector(text: &str) -> Result<Value> {
    use machinery::selector::{LabelSelector, Operator};
    let parsed = LabelSelector::parse(text).map_err(Failure::of)?;
    let (mut labels, mut expressions) = (Map::new(), Vec::new());
    for requirement in parsed.requirements() {
        match requirement.operator {
            Operator::Equals if requirement.values.len() == 1 => {
                labels.insert(requirement.key.clone(), requirement.values[0].clone().into());
            }
            Operator::Equals | Operator::In => {
                expressions.push(json!({"key": requirement.key, "operator": "In", "values": requirement.values}));
            }
            Operator::NotEquals | Operator::NotIn => {
                expressions.push(json!({"key": requirement.key, "operator": "NotIn", "values": requirement.values}));
            }
            Operator::Exists => expressions.push(json!({"key": requirement.key, "operator": "Exists"})),
            Operator::DoesNotExist => expressions.push(json!({"key": requirement.key, "operator": "DoesNotExist"})),
            _ => return Err(Failure::message(format!("{text:?} is not a valid label selector operator"))),
        }
    }
    let mut selector = Map::new();
    if !labels.is_empty() {
        selector.insert("matchLabels".into(), labels.into());
    }
    if !expressions.is_empty() {
        selector.insert("matchExpressions".into(), expressions.into());
    }
    Ok(selector.into())
}
