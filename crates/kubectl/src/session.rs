//! One run of one command: its arguments, the connection to the server, and what is asked of it.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use crate::config::{self, Settings};
use crate::dial::Clock;
use crate::failure::{Failure, Result};
use crate::flags::Parsed;
use crate::resource::mapping::Mapping;
use crate::terminal;
use crate::trace::Trace;

pub(crate) const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
pub(crate) const JSON: &str = "application/json";

/// A line of a watch or a log may be as long as the largest object, and not longer.
const LINE_MAX: usize = 64 << 20;

pub(crate) struct Session {
    /// `kubectl create secret`.
    pub path: String,
    pub flags: Parsed,
    settings: OnceCell<Settings>,
    client: OnceCell<kube::Client>,
    /// Times connections, where a trace tells of them.
    clock: Option<Clock>,
    warned: RefCell<BTreeSet<String>>,
    pub(crate) discovered: RefCell<Option<Vec<Mapping>>>,
    /// Whether an object was printed already, from which the next is to be separated.
    pub(crate) printed: std::cell::Cell<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub method: http::Method,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub body: Option<(Vec<u8>, &'static str)>,
    pub accept: &'static str,
}

impl Call {
    pub(crate) fn new(method: http::Method, path: impl Into<String>) -> Call {
        Call { method, path: path.into(), query: Vec::new(), body: None, accept: JSON }
    }

    pub(crate) fn get(path: impl Into<String>) -> Call {
        Call::new(http::Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>, body: &Value) -> Call {
        Call::new(http::Method::POST, path).with_body(body.to_string().into_bytes(), JSON)
    }

    pub(crate) fn put(path: impl Into<String>, body: &Value) -> Call {
        Call::new(http::Method::PUT, path).with_body(body.to_string().into_bytes(), JSON)
    }

    pub(crate) fn patch(path: impl Into<String>, kind: &'static str, body: &Value) -> Call {
        Call::new(http::Method::PATCH, path).with_body(body.to_string().into_bytes(), kind)
    }

    pub(crate) fn delete(path: impl Into<String>, options: &Value) -> Call {
        Call::new(http::Method::DELETE, path).with_body(options.to_string().into_bytes(), JSON)
    }

    pub(crate) fn with_body(mut self, body: Vec<u8>, content_type: &'static str) -> Call {
        self.body = Some((body, content_type));
        self
    }

    /// Adds a parameter, unless its value is empty.
    pub(crate) fn with(mut self, key: &str, value: impl Into<String>) -> Call {
        let value = value.into();
        if !value.is_empty() {
            self.query.push((key.into(), value));
        }
        self
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Call {
        self.accept = accept;
        self
    }
}

impl Session {
    pub(crate) fn new(path: String, flags: Parsed) -> Session {
        let clock = (flags.has("v") && Trace::times(flags.integer("v"))).then(Clock::default);
        Session {
            path,
            flags,
            clock,
            settings: OnceCell::new(),
            client: OnceCell::new(),
            warned: RefCell::default(),
            discovered: RefCell::default(),
            printed: Default::default(),
        }
    }

    pub(crate) fn arguments(&self) -> &[String] {
        &self.flags.arguments
    }

    /// A refusal that points at the command's help.
    pub(crate) fn usage<T>(&self, text: impl Into<String>) -> Result<T> {
        Err(Failure::Usage(text.into()))
    }

    pub(crate) fn settings(&self) -> Result<&Settings> {
        if self.settings.get().is_none() {
            let settings = config::settings(&self.flags)?;
            if let Some(program) = settings.client.auth_info.exec.as_ref().and_then(|exec| exec.command.as_ref()) {
                crate::kuberc::may_run(program)?;
            }
            let _ = self.settings.set(settings);
        }
        self.settings.get().ok_or_else(|| Failure::message("cannot load the kubeconfig"))
    }

    pub(crate) fn namespace(&self) -> Result<&str> {
        Ok(&self.settings()?.namespace)
    }

    pub(crate) fn client(&self) -> Result<&kube::Client> {
        if self.client.get().is_none() {
            let settings = self.settings()?;
            // Every TLS connection of the process uses the one provider that is compiled in.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let client = crate::proxy::client(settings.client.clone(), self.clock.as_ref())
                .map_err(|error| self.connection(&error))?;
            let _ = self.client.set(client);
        }
        self.client.get().ok_or_else(|| Failure::message("cannot create a client"))
    }

    pub(crate) fn request_timeout(&self) -> Result<Option<Duration>> {
        let text = self.flags.text("request-timeout");
        let seconds = match text.parse::<u64>() {
            Ok(seconds) => seconds as f64,
            Err(_) => crate::flags::duration(text).ok_or_else(|| {
                Failure::message("Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a corresponding time unit (e.g. 1s | 2m | 3h)".to_string())
            })?,
        };
        Ok(Some(seconds).filter(|seconds| *seconds > 0.0).map(Duration::from_secs_f64))
    }

    /// The answer, whatever its code.
    async fn answer<'a>(&self, call: &'a Call) -> Result<(http::Response<Body>, Trace<'a>)> {
        let mut url = call.path.clone();
        if !call.query.is_empty() {
            let mut query = form_urlencoded::Serializer::new(String::new());
            call.query.iter().for_each(|(key, value)| _ = query.append_pair(key, value));
            url += if url.contains('?') { "&" } else { "?" };
            url += &query.finish();
        }
        let mut request = http::Request::builder().method(call.method.clone()).uri(&url);
        request = request.header("accept", call.accept).header("user-agent", user_agent());
        let body = match &call.body {
            Some((body, content_type)) => {
                request = request.header("content-type", *content_type);
                Body::from(body.clone())
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(Failure::of)?;
        let shown = format!("{}{url}", self.settings()?.server.trim_end_matches('/'));
        let sent = call.body.as_ref().map(|(body, _)| body.as_slice());
        let headers = self.shown_headers(&request)?;
        let trace = Trace::request(self.flags.integer("v"), &call.method, shown, &headers, sent, self.clock.clone());
        let sending = self.client()?.send(request);
        let answer = match self.request_timeout()? {
            Some(limit) => tokio::time::timeout(limit, sending).await.map_err(|_| self.timed_out(&call.path))?,
            None => sending.await,
        };
        let answer = answer.map_err(|error| self.connection(&error))?;
        trace.response(answer.status(), answer.headers());
        self.show_warnings(answer.headers());
        if answer.status().is_success() {
            return Ok((answer, trace));
        }
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        trace.answer(&body);
        Err(Failure::status(refusal(code, &body)))
    }

    fn timed_out(&self, path: &str) -> Failure {
        let server = self.settings().map(|settings| settings.server.clone()).unwrap_or_default();
        Failure::Plain(format!(
            "Unable to connect to the server: Get \"{server}{path}\": net/http: request canceled (Client.Timeout exceeded while awaiting headers)"
        ))
    }

    pub(crate) async fn bytes(&self, call: &Call) -> Result<Vec<u8>> {
        let (answer, trace) = self.answer(call).await?;
        let reading = answer.into_body().collect();
        let body = match self.request_timeout()? {
            Some(limit) => tokio::time::timeout(limit, reading).await.map_err(|_| self.timed_out(&call.path))?,
            None => reading.await,
        };
        let body = body.map_err(|error| Failure::Plain(format!("Unable to connect to the server: {error}")))?;
        let body = body.to_bytes();
        trace.answer(&body);
        Ok(body.to_vec())
    }

    /// What a trace shows of a request: its own headers, and that there are credentials.
    fn shown_headers(&self, request: &http::Request<Body>) -> Result<http::HeaderMap> {
        let mut headers = request.headers().clone();
        let user = &self.settings()?.client.auth_info;
        let kind = if user.token.is_some() || user.token_file.is_some() { "Bearer ?" } else { "Basic ?" };
        if user.token.is_some() || user.token_file.is_some() || user.username.is_some() {
            headers.insert(http::header::AUTHORIZATION, http::HeaderValue::from_static(kind));
        }
        Ok(headers)
    }

    pub(crate) async fn send(&self, call: &Call) -> Result<Value> {
        let body = self.bytes(call).await?;
        serde_json::from_slice(&body)
            .map_err(|error| Failure::message(format!("cannot decode the server's answer as JSON: {error}")))
    }

    /// The bytes of an answer as they come.
    pub(crate) async fn chunks(&self, call: &Call) -> Result<Chunks> {
        Ok(Chunks { body: self.answer(call).await?.0.into_body(), rest: Vec::new(), ended: false })
    }

    fn show_warnings(&self, headers: &http::HeaderMap) {
        for header in headers.get_all("warning") {
            let Ok(header) = header.to_str() else { continue };
            let Some((_, quoted)) = header.split_once('"') else { continue };
            let quoted = quoted.trim_end();
            let text = quoted.strip_suffix('"').unwrap_or(quoted).replace("\\\"", "\"").replace("\\\\", "\\");
            self.warn_once(&text);
        }
    }

    pub(crate) fn warn_once(&self, text: &str) {
        if self.warned.borrow_mut().insert(text.to_string()) {
            terminal::warn(text);
        }
    }

    pub(crate) fn warned(&self) -> usize {
        self.warned.borrow().len()
    }

    /// What upstream says of a connection that cannot be made.
    pub(crate) fn connection(&self, error: &kube::Error) -> Failure {
        if let kube::Error::Api(status) = error {
            return Failure::status(serde_json::to_value(status).unwrap_or_default());
        }
        let Ok(settings) = self.settings() else { return Failure::message(error.to_string()) };
        crate::connection::failure(settings, error)
    }
}

/// An answer that goes on: a watch, a log.
pub(crate) struct Chunks {
    body: Body,
    rest: Vec<u8>,
    ended: bool,
}

impl Chunks {
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Ok(Some(data.to_vec())),
                    _ => continue,
                },
                Some(Err(error)) => return Err(Failure::message(error.to_string())),
            }
        }
    }

    /// The next line, without its end.
    pub(crate) async fn line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.rest, rest);
                line.pop();
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(Some(std::mem::take(&mut self.rest)).filter(|line| !line.is_empty()));
            }
            let mut collected = std::mem::take(&mut self.rest);
            match self.next().await? {
                Some(more) if collected.len() + more.len() <= LINE_MAX => collected.extend(more),
                Some(_) => {
                    return Err(Failure::message("cannot read the server's answer: a line is longer than 64 MiB"));
                }
                None => self.ended = true,
            }
            self.rest = collected;
        }
    }

    /// The next event of a watch. White space between and inside of events is none of our business, as in upstream's client.
    pub(crate) async fn event(&mut self) -> Result<Option<Value>> {
        let mut text: Vec<u8> = Vec::new();
        while let Some(line) = self.line().await? {
            text.extend(line);
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice(&text) {
                Ok(event) => return Ok(Some(event)),
                Err(error) if error.is_eof() && text.len() <= LINE_MAX => text.push(b'\n'),
                Err(error) => return Err(Failure::message(error.to_string())),
            }
        }
        Ok(None)
    }
}

pub(crate) fn user_agent() -> String {
    format!("kubectl/{} ({}/{}) knarr", crate::VERSION, std::env::consts::OS, go_architecture())
}

pub(crate) fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The server's Status, or one made of the code where the body is none, in the words of upstream's client.
pub(crate) fn refusal(code: u16, body: &[u8]) -> Value {
    if let Ok(status) = serde_json::from_slice::<Value>(body)
        && status["kind"] == "Status"
    {
        return status;
    }
    let text = String::from_utf8_lossy(body).trim().to_string();
    let (reason, message) = match code {
        400 => ("BadRequest", "the server rejected our request for an unknown reason".to_string()),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".into()),
        403 => ("Forbidden", if text.is_empty() { "forbidden".into() } else { text }),
        404 => ("NotFound", "the server could not find the requested resource".into()),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource".into()),
        409 => ("Conflict", "the server reported a conflict".into()),
        429 => {
            ("TooManyRequests", "the server has received too many requests and has asked us to try again later".into())
        }
        500 => {
            ("InternalError", format!("an error on the server ({text:?}) has prevented the request from succeeding"))
        }
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".into()),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_string(),
        ),
        _ => ("", format!("the server responded with the status code {code} but did not return more information")),
    };
    serde_json::json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn white_space_between_and_inside_of_events_does_not_matter() {
        let text = "\n \n{\"type\":\"ADDED\",\"object\":{\"a\":1}\n}\n\n\r\n{\"type\":\"DELETED\"}\n{\"type\":\"ADD";
        let mut chunks = Chunks { body: Body::from(text.as_bytes().to_vec()), rest: Vec::new(), ended: false };
        let mut events = Vec::new();
        while let Some(event) = chunks.event().await.unwrap_or_default() {
            events.push(event["type"].as_str().unwrap_or_default().to_owned());
        }
        assert_eq!(events, ["ADDED", "DELETED"]);
    }
}
