//! Authentication, impersonation and authorization of a request.

use http::request::Parts;
use machinery::status::Status;
use tokio::time::Instant;

use super::{Noted, Peer};
use crate::app::App;
use crate::audit::{self, Record};
use crate::authn::{self, User};
use crate::authz::{Attributes, Decision, forbidden};
use crate::pki::Signer;
use crate::query::Query;
use crate::target::{Target, Verb};

/// Who the caller is, or whom it may act as. From here on the request is written down, where somebody wants that.
pub(super) async fn identify(
    app: &App,
    peer: &Peer,
    parts: &Parts,
    target: &Target,
    query: &Query,
    noted: &mut Noted,
) -> Result<User, Status> {
    let path = parts.uri.path();
    let user = match &peer.identity {
        Some(user) => User::clone(user),
        None => {
            let proven = authenticate(app, peer, parts, path).await;
            proven.inspect_err(|_| record(app, peer, parts, target, None, noted))?
        }
    };
    record(app, peer, parts, target, Some(&user), noted);
    let attributes = attributes_of(&user, target, path, query);
    let impersonated = authn::impersonate(&parts.headers, &attributes, &app.authorizer, &app.views).await?;
    let Some(other) = impersonated else { return Ok(user) };
    if let Some(record) = &mut noted.audit {
        record.impersonates(&other);
    }
    Ok(other)
}

async fn authenticate(app: &App, peer: &Peer, parts: &Parts, path: &str) -> Result<User, Status> {
    let began = Instant::now();
    let proven = app.authenticator.authenticate(&parts.headers, peer.certificate.as_deref(), path, &app.views).await;
    app.metrics.identity.authenticated(proven.as_ref().ok(), began.elapsed());
    if let Some(certificate) = peer.certificate.as_deref().filter(|_| proven.is_ok())
        && certificate.signer == Signer::Cluster
    {
        app.metrics.operations.certificate(certificate.not_after - app.clock.now().as_second());
    }
    proven
}

pub(super) async fn authorize(
    app: &App,
    attributes: &Attributes<'_>,
    record: Option<&mut Record>,
) -> Result<(), Status> {
    let began = Instant::now();
    let decision = app.authorizer.authorize(attributes, &app.views).await;
    app.metrics.identity.authorized(&decision, began.elapsed());
    if let Some(record) = record {
        match &decision {
            Decision::Allow(reason) => record.authorized("allow", reason),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => record.authorized("forbid", reason),
            Decision::Failed { .. } => record.authorized("forbid", "internal error"),
        }
    }
    match decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
        // As upstream: who could not be asked says neither yes nor no.
        Decision::Failed { error, .. } => Err(Status::internal(error)),
    }
}

/// Begins to write a request down, where somebody wants that.
fn record(app: &App, peer: &Peer, parts: &Parts, target: &Target, user: Option<&User>, noted: &mut Noted) {
    let Some(audit) = &app.audit else { return };
    let asked = audit::Asked {
        id: noted.id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or(""),
        method: &parts.method,
        uri: &parts.uri,
        headers: &parts.headers,
        target,
        peer: peer.address.map(|address| address.ip()),
        received: app.clock.now(),
    };
    noted.audit = Record::begin(audit, &asked, user);
}

pub(super) fn attributes_of<'a>(user: &'a User, target: &'a Target, path: &'a str, query: &'a Query) -> Attributes<'a> {
    if !target.is_resource {
        return Attributes::path(user, target.verb.as_str(), path);
    }
    // A list or watch of one name may be allowed for that name alone.
    let selected = match target.verb {
        Verb::List | Verb::Watch | Verb::DeleteCollection if target.name.is_empty() => {
            one_name(query.get("fieldSelector"))
        }
        _ => "",
    };
    Attributes {
        version: &target.version,
        subresource: &target.subresource,
        namespace: &target.namespace,
        name: if target.name.is_empty() { selected } else { &target.name },
        field_selector: query.get("fieldSelector"),
        label_selector: query.get("labelSelector"),
        ..Attributes::resource(user, target.verb.as_str(), &target.group, &target.resource)
    }
}

fn one_name(selector: &str) -> &str {
    match selector.split_once('=') {
        Some(("metadata.name", name)) if !name.contains([',', '=', '!']) => name,
        _ => "",
    }
}
