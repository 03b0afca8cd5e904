//! The record of one request, from its head to the end of its answer.

use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use jiff::Timestamp;
use machinery::codec::{self, protobuf};
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::{Value, json};

use super::Audit;
use super::event::{Event, EventUser, ObjectRef, source_ips, stamp, user_agent, without_managed_fields};
use super::policy::{Chosen, Level, Stage};
use crate::authn::User;
use crate::body::Body;
use crate::respond::Reply;
use crate::target::{Target, Verb};

/// The head of a request.
pub struct Asked<'a> {
    pub id: &'a str,
    pub method: &'a http::Method,
    pub uri: &'a http::Uri,
    pub headers: &'a HeaderMap,
    pub target: &'a Target,
    /// The address at the other end; none for a component of this process.
    pub peer: Option<std::net::IpAddr>,
    pub received: Timestamp,
}

pub struct Record {
    audit: Arc<Audit>,
    chosen: Chosen,
    event: Event,
    ended: bool,
}

impl Record {
    /// None where the policy wants nothing of it. Someone who could not prove who they are is no user.
    pub fn begin(audit: &Arc<Audit>, asked: &Asked, user: Option<&User>) -> Option<Box<Record>> {
        let chosen = audit.policy.choose(user, asked.target, asked.uri.path());
        if chosen.level == Level::None {
            return None;
        }
        let text = |name: &str| asked.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let peer = asked.peer.map_or("127.0.0.1".to_string(), |address| address.to_canonical().to_string());
        let target = asked.target;
        let event = Event {
            level: chosen.level.name(),
            audit_id: asked.id.into(),
            request_uri: asked.uri.path_and_query().map_or("", |path| path.as_str()).into(),
            verb: match target.verb {
                Verb::Unknown => asked.method.as_str().to_ascii_lowercase(),
                verb => verb.as_str().into(),
            },
            user: user.map(EventUser::of).unwrap_or_default(),
            source_ips: source_ips(text("x-forwarded-for"), text("x-real-ip"), &peer),
            user_agent: user_agent(text(USER_AGENT.as_str())),
            object_ref: target.is_resource.then(|| ObjectRef {
                resource: target.resource.clone(),
                namespace: target.namespace.clone(),
                name: target.name.clone(),
                api_group: target.group.clone(),
                api_version: target.version.clone(),
                subresource: target.subresource.clone(),
                ..ObjectRef::default()
            }),
            request_received_timestamp: stamp(asked.received),
            ..Event::default()
        };
        let mut record = Box::new(Record { audit: audit.clone(), chosen, event, ended: false });
        match user {
            Some(_) => record.write(Stage::RequestReceived, asked.received),
            // Told once, with its answer.
            None => {
                let how = if asked.headers.contains_key(http::header::AUTHORIZATION) { "bearer" } else { "x509" };
                let message = format!("Authentication failed, attempted: {how}");
                let mut status = Status::unauthorized().to_value();
                status["message"] = message.into();
                record.event.response_status = Some(selected(&status, 401));
                record.write(Stage::ResponseStarted, audit.clock.now());
                record.ended = true;
            }
        }
        Some(record)
    }

    pub fn impersonates(&mut self, user: &User) {
        self.event.impersonated_user = Some(EventUser::of(user));
    }

    pub fn authorized(&mut self, decision: &str, reason: &str) {
        self.event.annotations.insert("authorization.k8s.io/decision".into(), decision.into());
        self.event.annotations.insert("authorization.k8s.io/reason".into(), reason.into());
    }

    /// What a plugin says first stays.
    pub fn annotate(&mut self, key: String, value: String) {
        self.event.annotations.entry(key.into()).or_insert(value);
    }

    /// What was sent. Of a patch nothing is known but itself; an object says its name where the path does not.
    pub fn request(&mut self, verb: Verb, headers: &HeaderMap, body: &Bytes) {
        if body.is_empty() {
            return;
        }
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let Some(object) = decoded(content_type, body) else { return };
        if verb != Verb::Patch
            && let Some(reference) = &mut self.event.object_ref
        {
            for (field, given) in [
                (&mut reference.namespace, object.namespace()),
                (&mut reference.name, object.name()),
                (&mut reference.uid, object.uid()),
                (&mut reference.resource_version, object.resource_version()),
            ] {
                if field.is_empty() {
                    *field = given.into();
                }
            }
        }
        if self.chosen.level >= Level::Request {
            self.event.request_object = Some(self.shown(object));
        }
    }

    /// What is answered. A stream is written down again when it ends.
    pub fn answered(
        mut self: Box<Self>,
        mut reply: Reply,
        failure: Option<&Status>,
        panicked: bool,
        long: bool,
    ) -> Reply {
        if self.ended {
            return reply;
        }
        let code = reply.status().as_u16();
        let mut status = json!({"metadata": {}, "code": code});
        if let Some(failure) = failure {
            status = selected(&failure.to_value(), code);
        }
        if let Body::Full(Some(body)) = reply.body() {
            let whole = self.chosen.level >= Level::RequestResponse && self.event.object_ref.is_some();
            let is_status = failure.is_none() && body.starts_with(b"{\"kind\":\"Status\"");
            if (whole || is_status)
                && let Some(object) = answer(&reply, body)
            {
                if is_status {
                    status = selected(&object, code);
                }
                if whole {
                    self.event.response_object = Some(self.shown(object));
                }
            }
        }
        self.event.response_status = Some(status);
        if panicked {
            self.write(Stage::Panic, self.audit.clock.now());
            self.ended = true;
            return reply;
        }
        if long {
            self.write(Stage::ResponseStarted, self.audit.clock.now());
        }
        if let Body::Stream(pieces) = reply.body_mut() {
            let inner = std::mem::replace(pieces, Box::pin(futures::stream::empty()));
            *pieces = Box::pin(Recorded { inner, _record: self });
        }
        reply
    }

    fn shown(&self, object: Value) -> Value {
        if self.chosen.omit_managed_fields { without_managed_fields(object) } else { object }
    }

    fn write(&mut self, stage: Stage, at: Timestamp) {
        if !self.chosen.writes(stage) {
            return;
        }
        self.event.stage = stage.name();
        self.event.stage_timestamp = stamp(at);
        self.audit.write(&self.event);
    }
}

impl Drop for Record {
    /// The request is over, however it ended: also when its client has gone.
    fn drop(&mut self) {
        if !self.ended {
            self.write(Stage::ResponseComplete, self.audit.clock.now());
        }
    }
}

/// An answer in pieces, whose record ends with it.
struct Recorded {
    inner: BoxStream<'static, Bytes>,
    _record: Box<Record>,
}

impl Stream for Recorded {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.inner.as_mut().poll_next(cx)
    }
}

/// What events keep of a Status.
fn selected(status: &Value, code: u16) -> Value {
    let mut kept = json!({"metadata": {}});
    for field in ["status", "message", "reason", "details"] {
        if let Some(value) = status.get(field) {
            kept[field] = value.clone();
        }
    }
    kept["code"] = code.into();
    kept
}

fn answer(reply: &Reply, body: &Bytes) -> Option<Value> {
    let header = |name| reply.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    if header(CONTENT_ENCODING) != "gzip" {
        return decoded(header(CONTENT_TYPE), body);
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).ok()?;
    decoded(header(CONTENT_TYPE), &plain)
}

fn decoded(content_type: &str, body: &[u8]) -> Option<Value> {
    if protobuf::is_protobuf(content_type) {
        let envelope = protobuf::open(body).ok()?;
        let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", envelope.api_version));
        let shape = api::schema::type_named(group, version, envelope.kind)?;
        return envelope.decode(shape, api::schema::field_numbers()).ok();
    }
    if content_type.contains("yaml") {
        codec::decode_yaml(body).ok().map(|decoded| decoded.value)
    } else {
        serde_json::from_slice(body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    const POLICY: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [\
        {level: RequestResponse, resources: [{group: '', resources: [configmaps]}]}, \
        {level: Metadata, resources: [{group: '', resources: [secrets]}]}]}";

    /// What is written of a request that is handled like that.
    fn written(method: &str, path: &str, act: impl FnOnce(Box<Record>)) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let (policy, log) = (folder.path().join("policy"), folder.path().join("log"));
        std::fs::write(&policy, POLICY).unwrap();
        let config =
            super::super::Config { policy_file: Some(policy), log_path: Some(log.clone()), ..Default::default() };
        let audit = Arc::new(Audit::start(&config, crate::app::Clock::system(), Default::default()).unwrap().unwrap());
        let (method, uri, headers) = (method.parse().unwrap(), path.parse().unwrap(), HeaderMap::new());
        let target = crate::target::parse(&method, path, &Query::default()).unwrap();
        let asked = Asked {
            id: "id",
            method: &method,
            uri: &uri,
            headers: &headers,
            target: &target,
            peer: None,
            received: Timestamp::UNIX_EPOCH,
        };
        let user = crate::authn::fixtures::user("eve", &["people"]);
        if let Some(record) = Record::begin(&audit, &asked, Some(&user)) {
            act(record);
        }
        let text = std::fs::read_to_string(log).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_request_is_written_when_it_comes_and_when_it_is_answered() {
        let body = Bytes::from_static(br#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#);
        let events = written("POST", "/api/v1/namespaces/n/configmaps", |mut record| {
            record.authorized("allow", "because");
            record.request(Verb::Create, &HeaderMap::new(), &body);
            let reply = crate::respond::bytes_reply(201, "application/json", body.clone());
            record.answered(reply, None, false, false);
        });
        let stages: Vec<&Value> = events.iter().map(|event| &event["stage"]).collect();
        assert_eq!(stages, ["RequestReceived", "ResponseComplete"]);
        let mut last = events[1].clone();
        last["stageTimestamp"] = "T".into();
        let object = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        assert_eq!(
            last,
            json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "id",
                "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/n/configmaps", "verb": "create",
                "user": {"username": "eve", "groups": ["people"]}, "sourceIPs": ["127.0.0.1"],
                "objectRef": {"resource": "configmaps", "namespace": "n", "name": "a", "apiVersion": "v1"},
                "responseStatus": {"metadata": {}, "code": 201}, "requestObject": object, "responseObject": object,
                "requestReceivedTimestamp": "1970-01-01T00:00:00.000000Z", "stageTimestamp": "T",
                "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "because"},
            })
        );
    }

    #[test]
    fn metadata_alone_holds_no_objects() {
        let body = Bytes::from_static(br#"{"metadata":{"name":"a"},"data":{"k":"c2VjcmV0"}}"#);
        let events = written("POST", "/api/v1/namespaces/n/secrets", |mut record| {
            record.request(Verb::Create, &HeaderMap::new(), &body);
            record.answered(crate::respond::bytes_reply(201, "application/json", body.clone()), None, false, false);
        });
        assert_eq!(events[1]["objectRef"]["name"], "a");
        assert!(!events[1].to_string().contains("c2VjcmV0"));
        assert!(written("GET", "/version", |_| panic!("no rule wants it")).is_empty());
    }

    #[test]
    fn failures_streams_and_panics_say_how_they_ended() {
        let path = "/api/v1/namespaces/n/secrets/a";
        let status = Status::new(409, "Conflict", "no");
        let events = written("PUT", path, |record| {
            record.answered(crate::respond::status(&status, None), Some(&status), false, false);
        });
        let expected = json!({"metadata": {}, "status": "Failure", "message": "no", "reason": "Conflict", "code": 409});
        assert_eq!(events[1]["responseStatus"], expected);

        let stages = |act: &dyn Fn(Box<Record>)| -> Vec<String> {
            let events = written("GET", path, act);
            events.iter().map(|event| event["stage"].as_str().unwrap().to_string()).collect()
        };
        let stream = || {
            let pieces = futures::stream::once(async { Bytes::from_static(b"{}") });
            crate::respond::reply(200, "application/json", Body::Stream(Box::pin(pieces)))
        };
        let began = stages(&|record| std::mem::forget(record.answered(stream(), None, false, true)));
        assert_eq!(began, ["RequestReceived", "ResponseStarted"]);
        let ended = stages(&|record| drop(record.answered(stream(), None, false, true)));
        assert_eq!(ended, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
        let panicked = stages(&|record| {
            record.answered(crate::respond::text(500, ""), None, true, false);
        });
        assert_eq!(panicked, ["RequestReceived", "Panic"]);
    }
}
