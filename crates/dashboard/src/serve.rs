//! The steps of a request: was it meant for this host, does it come from our own page, who asks, then what is asked.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use machinery::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{Connection, Credential, User};
use crate::body::{Body, QUESTION_BYTES_MAX, full, read};
use crate::codes::CODE_LIFETIME;
use crate::guard::{CSRF, host, is_known_host, is_websocket, protect, same_origin};
use crate::session::{Session, SignedIn, no_cookie};
use crate::{Dashboard, assets, kinds, live, pass};

const ROOT: &str = "/dashboard";

impl Dashboard {
    /// Answers one request below `/dashboard`. Never fails: whatever goes wrong becomes a Status.
    pub fn answer(
        self: Arc<Self>,
        connection: Connection,
        request: Request<Body>,
    ) -> BoxFuture<'static, Response<Body>> {
        self.answer_one(connection, request).boxed()
    }

    async fn answer_one(self: Arc<Self>, connection: Connection, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let head = parts.method == Method::HEAD;
        let (mut answer, nonce) = match self.steps(&connection, parts, body).await {
            Ok(Page::Answer(answer)) => (answer, None),
            Ok(Page::Index) => {
                let nonce = self.sessions.random_text().unwrap_or_default().replace(['-', '_'], "0");
                (assets::index(&nonce), Some(nonce))
            }
            Err(status) => (refused(&status), None),
        };
        protect(answer.headers_mut(), nonce.as_deref());
        if head {
            *answer.body_mut() = full("");
        }
        answer
    }

    async fn steps(self: &Arc<Self>, connection: &Connection, parts: Parts, body: Body) -> Result<Page, Status> {
        let host = host(&parts).ok_or_else(|| Status::bad_request("the request names no host, or two"))?;
        if !is_known_host(host, &self.config.hosts) {
            let message =
                format!("{host:?} is not a name of this server: use a name of its certificate, or its address");
            return Err(Status::new(421, "Misdirected", message));
        }
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        if !reads || is_websocket(&parts.headers) {
            same_origin(&parts.headers, &self.config.scheme, host)?;
        }
        let Some(path) = parts.uri.path().strip_prefix(ROOT) else { return Err(Status::no_such_resource()) };
        if path.is_empty() {
            return Ok(Page::Answer(redirect("/dashboard/")));
        }
        if let Some(question) = path.strip_prefix("/api/") {
            return self.question(connection, question.to_string(), parts, body).await.map(Page::Answer);
        }
        if path == "/k8s" || path.starts_with("/k8s/") {
            let signed_in = self.signed_in(connection, &parts).await?;
            return pass::pass(&signed_in, parts, body).await.map(Page::Answer);
        }
        if !reads {
            return Err(Status::method_not_allowed());
        }
        let name = path.trim_start_matches('/');
        match assets::file(name, &parts.headers) {
            Some(file) if name != "index.html" => Ok(Page::Answer(file)),
            // A route of the page; names of files have a dot in them.
            _ if name == "index.html" || !(name.contains('.') || name.starts_with("assets/")) => Ok(Page::Index),
            _ => Err(Status::new(404, "NotFound", "the dashboard has no such file")),
        }
    }

    /// The session of a request, checked: that its page is ours where it changes something, and that its user still is one.
    pub(crate) async fn signed_in(&self, connection: &Connection, parts: &Parts) -> Result<SignedIn, Status> {
        let session = self.sessions.of(&parts.headers, self.config.clock.now()).ok_or_else(Status::unauthorized)?;
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            let shown = parts.headers.get(CSRF).map(HeaderValue::as_bytes).unwrap_or_default();
            if !self.sessions.is_csrf(&session, shown) {
                return Err(Status::new(403, "Forbidden", "the header X-Knarr-Csrf is missing or of another session"));
            }
        }
        self.open(session, connection).await
    }

    pub(crate) async fn open(&self, session: Session, connection: &Connection) -> Result<SignedIn, Status> {
        if self.access.is_signed_out(&session.id).await? {
            return Err(Status::unauthorized());
        }
        let user = self.access.identify(&session.credential).await?;
        let client = self.access.client(&session.credential, &user, connection)?;
        Ok(SignedIn { session, user, client })
    }

    async fn question(
        self: &Arc<Self>,
        connection: &Connection,
        question: String,
        parts: Parts,
        body: Body,
    ) -> Result<Response<Body>, Status> {
        match (question.as_str(), parts.method.as_str()) {
            ("session", "POST") => return self.sign_in(connection, &parts, body).await,
            ("session", "DELETE") => return self.sign_out(connection, &parts).await,
            ("codes", "POST") => return self.make_code(connection, &parts).await,
            ("session", "GET") => {
                let signed_in = self.signed_in(connection, &parts).await?;
                return Ok(answered(
                    StatusCode::OK,
                    &self.describe(&signed_in.session, &signed_in.user, connection).await,
                ));
            }
            _ => {}
        }
        let signed_in = self.signed_in(connection, &parts).await?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let answer = match (question.as_str(), parts.method.as_str()) {
            ("live", "GET") => return live::upgrade(self.clone(), connection.clone(), signed_in, parts),
            ("resources", "GET") => kinds::answer(&signed_in.client).await?,
            ("may", "POST") => self.rights.answer(&signed_in, &read_json(body).await?).await?,
            ("search", "GET") => crate::search::answer(self, &signed_in, &query).await?,
            ("why", "GET") => crate::why::answer(self, &signed_in, &query).await?,
            ("why/write", "POST") => crate::why::write::answer(&signed_in, &read_json(body).await?).await?,
            ("why/traffic", "GET") => crate::why::traffic::answer(self, &signed_in, &query).await?,
            ("history", "GET") => crate::history::answer(self, &signed_in, &query).await?,
            ("revisions", "GET") => crate::revisions::answer(self, &signed_in, &query).await?,
            (
                "live" | "resources" | "may" | "search" | "why" | "why/write" | "why/traffic" | "history" | "revisions",
                _,
            ) => {
                return Err(Status::method_not_allowed());
            }
            _ => return Err(Status::new(404, "NotFound", "the dashboard has no such question")),
        };
        Ok(answered(StatusCode::OK, &answer))
    }

    async fn sign_in(&self, connection: &Connection, parts: &Parts, body: Body) -> Result<Response<Body>, Status> {
        // A form of another site's page cannot send this type without asking first.
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !kind.trim_start().to_ascii_lowercase().starts_with("application/json") {
            return Err(Status::new(415, "UnsupportedMediaType", "sign in with a body of type application/json"));
        }
        let (now, from) = (self.config.clock.now(), connection.address.map(|address| address.ip()));
        self.failures.check(from, now)?;
        let asked: SignIn = parse(&read_json(body).await?)?;
        let refused = |status: Status| {
            if status.code == 401 {
                self.failures.count(from, now);
            }
            status
        };
        let (credential, until) = self.credential(asked, connection, now).map_err(refused)?;
        let user = self.access.identify(&credential).await.map_err(refused)?;
        let session = self.sessions.begin(credential, until, now)?;
        let mut answer = answered(StatusCode::CREATED, &self.describe(&session, &user, connection).await);
        answer.headers_mut().insert(SET_COOKIE, self.sessions.cookie(&session, now)?);
        tracing::info!(user = user.name, "user signed in to the dashboard");
        Ok(answer)
    }

    fn credential(
        &self,
        asked: SignIn,
        connection: &Connection,
        now: Timestamp,
    ) -> Result<(Credential, Option<Timestamp>), Status> {
        match asked {
            SignIn { token: Some(token), code: None, client_certificate: false } => {
                let token = token.trim();
                let is_sign = |byte: u8| byte.is_ascii_graphic();
                if token.is_empty() || !token.bytes().all(is_sign) {
                    return Err(Status::unauthorized());
                }
                Ok((Credential::Token(token.to_string()), expiry(token)))
            }
            SignIn { token: None, code: Some(code), client_certificate: false } => {
                self.codes.take(&code, now).ok_or_else(Status::unauthorized)
            }
            SignIn { token: None, code: None, client_certificate: true } => {
                let (user, until) = connection.certificate.clone().ok_or_else(Status::unauthorized)?;
                Ok((Credential::Identity(user), Some(until)))
            }
            _ => Err(Status::bad_request("sign in with one of token, code and clientCertificate")),
        }
    }

    async fn sign_out(&self, connection: &Connection, parts: &Parts) -> Result<Response<Body>, Status> {
        // Whoever has no session any more is signed out, too.
        if self.sessions.of(&parts.headers, self.config.clock.now()).is_some() {
            let session = self.signed_in(connection, parts).await?.session;
            let now = self.config.clock.now();
            self.sessions.has_room(now)?;
            // First for everybody: what fails can then be tried again.
            self.access.sign_out(&session.id, session.remains(now)).await?;
            self.sessions.end(&session, now);
        }
        let mut answer = Response::new(full(""));
        *answer.status_mut() = StatusCode::NO_CONTENT;
        answer.headers_mut().insert(SET_COOKIE, no_cookie());
        Ok(answer)
    }

    /// For `knarr dashboard open`: whoever proves who they are as for any request to the API gets a code that signs them in.
    async fn make_code(&self, connection: &Connection, parts: &Parts) -> Result<Response<Body>, Status> {
        let bearer = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let now = self.config.clock.now();
        let (credential, until) = match (bearer, &connection.certificate) {
            (Some(token), _) => (Credential::Token(token.to_string()), expiry(token)),
            (None, Some((user, until))) => (Credential::Identity(user.clone()), Some(*until)),
            (None, None) => return Err(Status::unauthorized()),
        };
        let user = self.access.identify(&credential).await?;
        let code = self.new_code(&user.name, credential, until)?;
        let expires = (now + CODE_LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Ok(answered(StatusCode::CREATED, &json!({"code": code, "expires": expires})))
    }

    /// A code that signs in once with that credential.
    pub fn new_code(&self, user: &str, credential: Credential, until: Option<Timestamp>) -> Result<String, Status> {
        let code = self.sessions.random_text()?;
        self.codes.put(user, &code, credential, until, self.config.clock.now())?;
        Ok(code)
    }

    async fn describe(&self, session: &Session, user: &User, connection: &Connection) -> Value {
        let expires = Timestamp::from_second(session.expires).ok();
        json!({
            "user": user.name,
            "groups": user.groups,
            "csrf": self.sessions.csrf(session),
            "expires": expires.map(|end| end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            "server": {"version": self.config.version, "name": self.config.name},
            "features": {
                "history": self.history.is_some(),
                "revisions": self.config.revisions.is_some(),
                "search": true,
                "scheduling": self.config.scheduling.is_some(),
                "policy": self.config.policy.is_some(),
            },
            "clientCertificate": self.access.takes_certificates() && connection.certificate.is_some(),
        })
    }
}

enum Page {
    Answer(Response<Body>),
    /// The page itself, for whatever route of its own.
    Index,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct SignIn {
    token: Option<String>,
    code: Option<String>,
    client_certificate: bool,
}

/// The parameters of a question.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: &str) -> Query {
        Query(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn kind(&self) -> kinds::Kind {
        kinds::Kind::new(self.get("group"), self.get("version"), self.get("resource"))
    }
}

/// When a token says that it ends. Only how long the cookie lives depends on it: the API server checks the token itself.
fn expiry(token: &str) -> Option<Timestamp> {
    use base64::Engine;
    let claims = token.split('.').nth(1)?;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

pub(crate) async fn read_json(body: Body) -> Result<Value, Status> {
    let bytes = read(body, QUESTION_BYTES_MAX.max(crate::why::write::BODY_BYTES_MAX)).await?;
    serde_json::from_slice(&bytes).map_err(|error| Status::bad_request(format!("the body is not JSON: {error}")))
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, Status> {
    T::deserialize(value).map_err(|error| Status::bad_request(error.to_string()))
}

pub(crate) fn answered(code: StatusCode, value: &Value) -> Response<Body> {
    let mut answer = Response::new(full(value.to_string()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn refused(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answered(code, &status.to_value())
}

fn redirect(to: &'static str) -> Response<Body> {
    let mut answer = Response::new(full(""));
    *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    answer
}
