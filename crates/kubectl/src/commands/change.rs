//! What commands that change objects share: dry runs, field managers, validation, and the sentence at the end.

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::{self, Format};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) const DRY_RUN: &[Flag] = &[Flag::optional(
    "dry-run",
    "none",
    "unchanged",
    "none, client or server: change nothing, only say what would be.",
)];

pub(super) const VALIDATE: &[Flag] = &[Flag::optional(
    "validate",
    "strict",
    "strict",
    "strict, warn or ignore: what happens to fields that are not known.",
)];

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DryRun {
    No,
    Client,
    Server,
}

pub(super) fn dry_run(session: &Session) -> Result<DryRun> {
    match session.flags.text("dry-run") {
        "none" | "" => Ok(DryRun::No),
        "client" => Ok(DryRun::Client),
        "server" => Ok(DryRun::Server),
        "unchanged" => {
            terminal::log('W', "helpers.go:719", "--dry-run is deprecated and can be replaced with --dry-run=client.");
            Ok(DryRun::Client)
        }
        "true" => Ok(DryRun::Client),
        "false" => Ok(DryRun::No),
        other => Err(Failure::message(format!(
            "Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\"."
        ))),
    }
}

/// What a change is made with, and how it is told.
pub(super) struct Change<'a> {
    pub session: &'a Session,
    pub format: Format,
    pub dry: DryRun,
}

impl<'a> Change<'a> {
    pub(crate) fn from(session: &'a Session) -> Result<Change<'a>> {
        if session.flags.has("validate") {
            check_validate(session.flags.text("validate"))?;
        }
        Ok(Change { session, format: Format::from(&session.flags, false)?, dry: dry_run(session)? })
    }

    pub(crate) fn local(&self) -> bool {
        self.dry == DryRun::Client
    }

    /// Adds what every write says of itself.
    pub(crate) fn call(&self, call: Call, manager: &str) -> Call {
        let given = self.session.flags.given("field-manager");
        self.call_as(call, if given { self.session.flags.text("field-manager") } else { manager })
    }

    /// The same for a manager that no flag changes.
    pub(super) fn call_as(&self, mut call: Call, manager: &str) -> Call {
        if self.dry == DryRun::Server {
            call = call.with("dryRun", "All");
        }
        call = call.with("fieldManager", manager);
        if self.session.flags.has("validate") {
            call = call.with("fieldValidation", validation(self.session.flags.text("validate")));
        }
        call
    }

    /// Like `call`, for commands without `--validate` which still want typed objects to be checked.
    pub(crate) async fn send(&self, call: Call, manager: &str) -> Result<Value> {
        self.session.send(&self.call(call, manager)).await
    }

    /// `deployment.apps/web created (server dry run)`, or the object in the format that was asked for.
    pub(crate) fn report(&self, shown: &str, object: &Value, operation: &str) -> Result<()> {
        self.report_as(shown, object, operation, Format::text)
    }

    /// The same for an object that upstream holds in one of its types, whose fields have an order in JSON.
    pub(super) fn report_typed(&self, shown: &str, object: &Value, operation: &str) -> Result<()> {
        self.report_as(shown, object, operation, Format::typed_text)
    }

    fn report_as(
        &self,
        shown: &str,
        object: &Value,
        operation: &str,
        text: fn(&Format, &Value) -> Result<String>,
    ) -> Result<()> {
        match &self.format {
            Format::Human { .. } => {
                let dry = match self.dry {
                    DryRun::No => "",
                    DryRun::Client => " (dry run)",
                    DryRun::Server => " (server dry run)",
                };
                terminal::outln(&format!("{shown} {operation}{dry}"));
            }
            Format::Name => terminal::outln(shown),
            format => {
                let mut object = object.clone();
                if format.leaves_out_managed_fields() && !self.session.flags.on("show-managed-fields") {
                    output::without_managed_fields(&mut object);
                }
                let first = self.session.printed.replace(true);
                let separator = if first && matches!(format, Format::Yaml) { "---\n" } else { "" };
                terminal::out(&format!("{separator}{}", text(format, &object)?));
            }
        }
        Ok(())
    }
}

fn check_validate(text: &str) -> Result<()> {
    if ["strict", "true", "warn", "ignore", "false", ""].contains(&text) {
        return Ok(());
    }
    Err(Failure::message(format!(
        "invalid - validate option {text:?}; must be one of: strict (or true), warn, ignore (or false)"
    )))
}

pub(crate) fn validation(text: &str) -> &'static str {
    match text {
        "warn" => "Warn",
        "ignore" | "false" => "Ignore",
        _ => "Strict",
    }
}

/// The object as Go would write it: with the fields that are always there, such as `status: {}`.
pub(super) fn as_go_writes(mut object: Value) -> Value {
    let version = object["apiVersion"].as_str().unwrap_or_default().to_string();
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = object["kind"].as_str().unwrap_or_default().to_string();
    if let Some(ty) = api::schema::type_named(group, version, &kind) {
        // What does not fit stays as it is; the server will say so.
        let _ = machinery::schema::conform::conform(&mut object, ty, &mut Default::default());
    }
    object
}

pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object with the annotation that holds the object itself, for the next apply.
pub(super) fn with_last_applied(object: &Value) -> Value {
    let text = last_applied_text(object);
    let mut object = object.clone();
    object["metadata"]["annotations"][LAST_APPLIED] = text.into();
    object
}

/// The same for an object that upstream holds in one of its types.
pub(super) fn with_last_applied_typed(object: &Value) -> Value {
    let mut object = object.clone();
    let text = format!("{}\n", output::order::compact(&object));
    object["metadata"]["annotations"][LAST_APPLIED] = text.into();
    object
}

pub(super) fn last_applied_text(object: &Value) -> String {
    let mut plain = object.clone();
    if !plain["metadata"]["annotations"].is_object() {
        plain["metadata"]["annotations"] = serde_json::json!({});
    }
    plain["metadata"]["annotations"].as_object_mut().map(|annotations| annotations.remove(LAST_APPLIED));
    format!("{}\n", output::json::compact(&plain))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn validation_has_three_levels() {
        for (text, level) in [("true", "Strict"), ("strict", "Strict"), ("warn", "Warn"), ("false", "Ignore")] {
            assert!(check_validate(text).is_ok());
            assert_eq!(validation(text), level);
        }
        assert!(check_validate("maybe").is_err());
    }

    #[test]
    fn the_annotation_holds_the_object_without_itself() {
        let object = json!({"kind": "Pod", "metadata": {"name": "a"}});
        let first = with_last_applied(&object);
        let text = "{\"kind\":\"Pod\",\"metadata\":{\"annotations\":{},\"name\":\"a\"}}\n";
        assert_eq!(first["metadata"]["annotations"][LAST_APPLIED], text);
        assert_eq!(with_last_applied(&first), first);
    }

    #[test]
    fn objects_get_what_go_always_writes() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}});
        let written = as_go_writes(pod);
        assert_eq!(written["status"], json!({}));
        let custom = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
        assert_eq!(as_go_writes(custom.clone()), custom);
    }
}
