//! Dispatches an authorized request to a verb, a subresource, or a non-resource path.

use std::sync::Arc;

use http::HeaderMap;
use machinery::status::Status;

use crate::app::App;
use crate::call::Call;
use crate::negotiate::Answer;
use crate::query::Query;
use crate::respond::{self, Reply};
use crate::target::Verb;
use crate::write::Part;
use crate::{custom, discovery, health, metrics, openapi, subresources, verbs};

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

pub(super) async fn non_resource(
    app: &Arc<App>,
    path: &str,
    method: &http::Method,
    query: &Query,
    headers: &HeaderMap,
    answer: &Result<Answer, Status>,
) -> Result<Reply, Status> {
    if let Some(reply) = health::answer(app, path, query).await {
        return Ok(reply);
    }
    if let Some(reply) = openapi::answer(app, path, query, headers).await? {
        return Ok(reply);
    }
    if (path, method) == ("/metrics/slis", &http::Method::DELETE) {
        app.health.slis.reset();
        return Ok(respond::text(200, "metrics reset\n"));
    }
    if !matches!(method.as_str(), "GET" | "HEAD") {
        return Ok(respond::text(405, "method not allowed\n"));
    }
    if let Some(reply) = crate::flagz::answer(&app.zpages, path, headers, app.clock.now()) {
        return Ok(reply);
    }
    match path {
        "/version" | "/version/" => return Ok(discovery::version()),
        "/metrics" => {
            app.measured.measure_size().await;
            return Ok(respond::bytes_reply(200, METRICS_TYPE, app.metrics.render(app)));
        }
        "/metrics/slis" => return Ok(respond::bytes_reply(200, METRICS_TYPE, metrics::render::slis(app))),
        "/.well-known/openid-configuration" => {
            let keys = app.settings.jwks_uri();
            let document = app.authenticator.service_accounts().discovery(&keys);
            return Ok(respond::bytes_reply(200, "application/json", document.to_string()));
        }
        "/openid/v1/jwks" => {
            let keys = app.authenticator.service_accounts().web_keys();
            return Ok(respond::bytes_reply(200, "application/jwk-set+json", keys.to_string()));
        }
        _ => {}
    }
    match discovery::answer(app, path, headers, answer)? {
        Some(reply) => Ok(reply),
        None => Ok(respond::text(404, "404 page not found\n")),
    }
}

pub(super) async fn dispatch(call: &Call, body: bytes::Bytes) -> Result<Reply, Status> {
    let (kind, target) = (&*call.resource.kind, &call.target);
    custom::begin(call)?;
    if !target.subresource.is_empty() {
        return Box::pin(subresources::dispatch(call, body)).await;
    }
    // One object is changed by its name, and made in its collection.
    let named = !target.name.is_empty();
    let fits = match target.verb {
        Verb::Update | Verb::Patch => named,
        Verb::Create => !named,
        _ => true,
    };
    let everywhere = target.namespace.is_empty();
    // There is no such path; that of the whole collection can be read, and nothing else.
    let no_such_path = if kind.namespaced() {
        everywhere && (named || (call.resource.custom.is_some() && !matches!(target.verb, Verb::List | Verb::Watch)))
    } else {
        target.in_namespace()
    };
    if no_such_path {
        return Err(Status::no_such_resource());
    }
    if !fits || !kind.verbs.contains(&target.verb.as_str()) {
        return Err(Status::method_not_allowed());
    }
    if kind.namespaced() && everywhere && !matches!(target.verb, Verb::List | Verb::Watch) {
        return Err(Status::method_not_allowed());
    }
    if call.resource.state.is_none() {
        return Box::pin(subresources::unstored(call, body)).await;
    }
    match target.verb {
        Verb::Get => Box::pin(verbs::get::get(call)).await,
        Verb::List => Box::pin(verbs::list::list(call)).await,
        Verb::Create => Box::pin(verbs::create::create(call, body)).await,
        Verb::Update => Box::pin(verbs::update::update(call, Part::Main, body)).await,
        Verb::Patch => Box::pin(verbs::patch::patch(call, Part::Main, body)).await,
        Verb::Delete => Box::pin(verbs::delete::delete(call, body)).await,
        Verb::DeleteCollection => Box::pin(verbs::delete::collection(call, body)).await,
        _ => Err(Status::method_not_allowed()),
    }
}
