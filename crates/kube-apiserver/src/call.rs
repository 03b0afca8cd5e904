//! One request on its way through the server: who asks, what for, and how the answer should look.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use machinery::field::{Errors, FieldError, Problem};
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;

use crate::app::App;
use crate::authn::User;
use crate::authz::{Attributes, Decision};
use crate::decode::{self, Expected};
use crate::negotiate::{Answer, Form, Media};
use crate::query::Query;
use crate::resources::Resource;
use crate::target::Target;

pub struct Call {
    pub app: Arc<App>,
    pub user: User,
    pub target: Arc<Target>,
    pub resource: Arc<Resource>,
    pub query: Query,
    pub headers: HeaderMap,
    pub answer: Answer,
    /// Where the request came from; nowhere where a part of this process asks.
    pub source: Option<IpAddr>,
    /// Sentences for `Warning` headers, in the order they were found.
    pub warnings: Mutex<Vec<String>>,
    /// What admission wants to be written down of this request.
    pub annotations: Mutex<Vec<(String, String)>>,
    /// How long webhooks have taken, for which the server is not to blame.
    pub waited: Mutex<Duration>,
}

/// How strictly unknown and duplicate fields are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    Ignore,
    Warn,
    Strict,
}

impl Call {
    /// The server's own request about an object, as `system:apiserver`: it passes admission like everyone else's.
    pub fn internal(app: &Arc<App>, object: &Value) -> Result<Call, Status> {
        let api_version = object["apiVersion"].as_str().unwrap_or("");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = object["kind"].as_str().unwrap_or("");
        let table = app.table.load();
        let resource = table.of_kind(group, version, kind).ok_or_else(Status::no_such_resource)?.clone();
        let user = User {
            name: "system:apiserver".into(),
            groups: vec!["system:authenticated".into(), crate::authz::MASTERS.into()],
            ..User::default()
        };
        let answer = Answer { media: Media::Json, form: Form::Object, meta_version: "v1", pretty: false, gzip: false };
        Ok(Call {
            app: app.clone(),
            user,
            target: Arc::default(),
            resource,
            query: Query::default(),
            headers: HeaderMap::new(),
            answer,
            source: None,
            warnings: Mutex::default(),
            annotations: Mutex::default(),
            waited: Mutex::default(),
        })
    }

    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().push(text.into());
    }

    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.annotations.lock().push((key.into(), value.into()));
    }

    pub fn waited(&self, took: Duration) {
        *self.waited.lock() += took;
    }

    /// `dryRun=All`: everything happens but the write.
    pub fn dry_run(&self, options: &'static str) -> Result<bool, Status> {
        let values = self.query.all("dryRun");
        if let Some(bad) = values.iter().find(|value| !value.is_empty() && **value != "All") {
            return Err(unsupported_option(options, "dryRun", &format!("[\"{bad}\"]"), &["All"]));
        }
        Ok(values.contains(&"All"))
    }

    pub(crate) fn strictness(&self, options: &'static str) -> Result<Strictness, Status> {
        match self.query.get("fieldValidation") {
            "" | "Warn" => Ok(Strictness::Warn),
            "Ignore" => Ok(Strictness::Ignore),
            "Strict" => Ok(Strictness::Strict),
            other => {
                let shown = format!("{other:?}");
                Err(unsupported_option(options, "fieldValidation", &shown, &["Ignore", "Strict", "Warn"]))
            }
        }
    }

    /// Who is written into managedFields: the given name, or the program's name from its User-Agent.
    pub(crate) fn field_manager(&self) -> Result<String, Status> {
        let given = self.query.get("fieldManager");
        if given.len() > FIELD_MANAGER_BYTES_MAX {
            let mut errors = Errors::default();
            let detail = format!("may not be more than {FIELD_MANAGER_BYTES_MAX} bytes");
            errors.push(FieldError::new(Problem::TooLong, "fieldManager", "", detail));
            return Err(Status::invalid("meta.k8s.io", "CreateOptions", "", &errors));
        }
        if !given.is_empty() {
            return Ok(given.to_string());
        }
        let agent = self.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let program = agent.split('/').next().unwrap_or("");
        let program: String = program.chars().filter(|sign| !sign.is_control()).take(FIELD_MANAGER_BYTES_MAX).collect();
        Ok(if program.is_empty() { "unknown".into() } else { program })
    }

    /// Whether this user may also do something else, as some verbs must ask.
    pub async fn may(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> bool {
        let attributes = Attributes {
            subresource,
            namespace,
            name,
            version: "*",
            ..Attributes::resource(&self.user, verb, group, resource)
        };
        matches!(self.app.authorizer.authorize(&attributes, &self.app.views).await, Decision::Allow(_))
    }
}

const FIELD_MANAGER_BYTES_MAX: usize = 128;

fn unsupported_option(options: &'static str, field: &str, value: &str, supported: &[&str]) -> Status {
    let quoted: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    let detail = format!("supported values: {}", quoted.join(", "));
    let mut errors = Errors::default();
    errors.push(FieldError::new(Problem::NotSupported, field, value, detail));
    Status::invalid("meta.k8s.io", options, "", &errors)
}

/// Decodes a body into an object of the resource's kind: the right kind, the right types, no unknown fields.
pub(crate) fn decode_object(
    call: &Call,
    resource: &Resource,
    body: &[u8],
    strictness: Strictness,
) -> Result<Value, Status> {
    decode_as(call, &Expected::of(resource), body, strictness)
}

/// The same for bodies of another kind than the resource's, such as a Scale.
pub(crate) fn decode_as(
    call: &Call,
    expected: &Expected,
    body: &[u8],
    strictness: Strictness,
) -> Result<Value, Status> {
    let content_type = call.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    decode::object(content_type, body, expected, strictness, &mut |warning| call.warn(warning))
}
