//! The steps of a request: who asks, may they, and which part of the server answers.

use std::sync::Arc;
use std::time::Duration;

use component_base::metrics::{Slis, process};
use component_helpers::zpages::Zpages;
use http::header::{ACCEPT, HeaderValue, WARNING};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use super::access::{self, Decisions};
use super::answers::{self, Answer, text};
use super::identity::{Tokens, User};
use super::{Server, Settings, Statistic, container_logs, lists, node_logs, streaming};

pub struct Context {
    pub server: Server,
    tokens: Tokens,
    decisions: Decisions,
    slis: Slis,
    zpages: Zpages,
}

impl Context {
    pub fn new(server: Server) -> Context {
        let Settings { version, flags, .. } = &server.settings;
        let zpages = Zpages::new("kubelet", version, process::start_time(), flags.clone());
        let zpages = zpages.beside(["/configz", "/flagz", "/healthz", "/metrics", "/pods", "/stats"]);
        let (tokens, decisions, slis) = (Tokens::default(), Decisions::default(), Slis::default());
        Context { server, tokens, decisions, slis, zpages }
    }
}

/// How long making statistics may take.
const STATISTIC_TIMEOUT: Duration = Duration::from_secs(60);
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

pub async fn serve(context: Arc<Context>, certified: Option<Arc<User>>, request: Request<Incoming>) -> Answer {
    // What comes in bodies is never of interest here; hyper drops it.
    let (mut parts, _) = request.into_parts();
    let _counted = context.server.counters.requests.begin(&parts.method, parts.uri.path());
    let answer = steps(&context, certified, &mut parts).await.unwrap_or_else(|refused| refused);
    answers::for_method(&parts.method, answer)
}

async fn steps(context: &Arc<Context>, certified: Option<Arc<User>>, parts: &mut Parts) -> Result<Answer, Answer> {
    let user = identify(context, certified, parts).await?;
    authorize(context, &user, parts).await?;
    Ok(route(context, parts).await)
}

async fn identify(context: &Context, certified: Option<Arc<User>>, parts: &Parts) -> Result<Arc<User>, Answer> {
    let now = context.server.settings.clock.now().as_second();
    if let Some(user) = certified.filter(|user| user.until.is_none_or(|until| now <= until)) {
        return Ok(user);
    }
    match context.tokens.identify(&context.server.client, &parts.headers).await {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(text(StatusCode::UNAUTHORIZED, "Unauthorized")),
        Err(error) => {
            tracing::warn!(%error, "cannot authenticate request");
            Err(text(StatusCode::UNAUTHORIZED, "Unauthorized"))
        }
    }
}

async fn authorize(context: &Context, user: &User, parts: &Parts) -> Result<(), Answer> {
    let (verb, subresources) = (access::verb(&parts.method), access::subresources(parts.uri.path()));
    let Server { client, settings, .. } = &context.server;
    for subresource in subresources {
        match context.decisions.allows(client, &settings.node_name, user, verb, subresource).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot authorize request");
                let message = format!(
                    "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
                    user.name
                );
                return Err(text(StatusCode::INTERNAL_SERVER_ERROR, message));
            }
        }
    }
    let message = format!(
        "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
        user.name,
        subresources.join(" ")
    );
    Err(text(StatusCode::FORBIDDEN, message))
}

async fn route(context: &Arc<Context>, parts: &mut Parts) -> Answer {
    let path = parts.uri.path().to_string();
    let query = parts.uri.query().unwrap_or("").to_string();
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let statistics = &context.server.statistics;
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    match segments.as_slice() {
        ["exec" | "attach" | "portForward", ..] if matches!(parts.method, Method::GET | Method::POST) => {
            streaming::answer(context, parts, &segments, &query).await
        }
        ["run", ..] if parts.method == Method::POST => streaming::run(context, &segments, &query).await,
        _ if !reads => match segments.first().copied() {
            Some("checkpoint") | None => answers::not_found(),
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
        },
        ["healthz"] => {
            ["ping", "log", "syncloop"].iter().for_each(|check| context.slis.observe(check, "healthz", true));
            text(StatusCode::OK, "ok")
        }
        ["healthz", "ping" | "log" | "syncloop"] => text(StatusCode::OK, "ok"),
        ["pods"] => lists::pods(&context.server),
        ["runningpods"] => lists::running_pods(&context.server),
        ["configz"] => {
            let document = serde_json::json!({"kubeletconfig": context.server.settings.configuration});
            answers::json(document.to_string())
        }
        ["statusz" | "flagz"] => zpage(context, &path, parts),
        ["containerLogs", namespace, pod, container] => {
            container_logs::answer(context, namespace, pod, container, &query).await
        }
        ["stats", "summary"] => statistic(&statistics.summary, query, "application/json").await,
        ["metrics"] => statistic(&statistics.metrics, query, METRICS_TYPE).await,
        ["metrics", "slis"] => answers::answer(StatusCode::OK, METRICS_TYPE, context.slis.text()),
        ["metrics", "cadvisor"] => statistic(&statistics.cadvisor, query, METRICS_TYPE).await,
        ["metrics", "resource"] => statistic(&statistics.resource, query, METRICS_TYPE).await,
        ["metrics", "probes"] => statistic(&statistics.probes, query, METRICS_TYPE).await,
        ["logs", rest @ ..] => node_logs::answer(&context.server.settings.node_log_dir, &path, rest, &query).await,
        _ => answers::not_found(),
    }
}

fn zpage(context: &Context, path: &str, parts: &Parts) -> Answer {
    let accept = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = accept.collect::<Vec<_>>().join(",");
    let now = context.server.settings.clock.now();
    let Some(page) = context.zpages.answer(path, &accept, now) else { return answers::not_found() };
    let status = StatusCode::from_u16(page.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = answers::answer(status, page.content_type, page.body);
    if let Some(warning) = page.warning {
        answer.headers_mut().insert(WARNING, HeaderValue::from_static(warning));
    }
    answer
}

async fn statistic(statistic: &Statistic, query: String, content_type: &'static str) -> Answer {
    match tokio::time::timeout(STATISTIC_TIMEOUT, statistic(query)).await {
        Ok(Ok(bytes)) => answers::answer(StatusCode::OK, content_type, bytes),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Error: statistics took too long"),
    }
}
