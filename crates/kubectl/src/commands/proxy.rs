//! `kubectl proxy`: the API on a port of this machine, for programs that cannot say who they are.

use std::convert::Infallible;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use regex::Regex;

use crate::command::Command;
use crate::failure::{Failure, Result, go_io_error};
use crate::flags::Flag;
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "proxy",
    group: super::TROUBLE,
    short: "Run a proxy to the Kubernetes API server.",
    usage: "[--port=PORT] [--www=static-dir] [--www-prefix=prefix] [--api-prefix=prefix] [options]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("accept-hosts", r"^localhost$,^127\.0\.0\.1$,^\[::1\]$", "Hosts that may be asked for."),
    Flag::text("accept-paths", "^.*", "Paths that may be asked for."),
    Flag::text("address", "127.0.0.1", "The address to listen on."),
    Flag::text("api-prefix", "/", "Where the API begins."),
    Flag::switch("append-server-path", "Keep the path of the server's own address."),
    Flag::switch("disable-filter", "Refuse nothing."),
    Flag::duration("keepalive", "0s", "How long connections are kept."),
    Flag::integer("port", "8001", "The port to listen on; 0 for any.").short('p'),
    Flag::text("reject-methods", "^$", "Methods that are refused."),
    Flag::text("reject-paths", "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach", "Paths that are refused."),
    Flag::text("unix-socket", "", "A socket to listen on instead of a port.").short('u'),
    Flag::text("www", "", "A folder to serve too.").short('w'),
    Flag::text("www-prefix", "/static/", "Where the folder begins.").short('P'),
];

/// Who may ask for what.
struct Filter {
    accept_hosts: Vec<Regex>,
    accept_paths: Vec<Regex>,
    reject_paths: Vec<Regex>,
    reject_methods: Vec<Regex>,
}

impl Filter {
    fn accepts(&self, method: &str, host: &str, path: &str) -> bool {
        let any = |rules: &[Regex], text: &str| rules.iter().any(|rule| rule.is_match(text));
        !any(&self.reject_paths, path)
            && !any(&self.reject_methods, method)
            && any(&self.accept_paths, path)
            && any(&self.accept_hosts, host)
    }
}

struct Proxy {
    client: kube::Client,
    filter: Option<Filter>,
    api: String,
    files: Option<(PathBuf, String)>,
}

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

fn rules(text: &str) -> Result<Vec<Regex>> {
    let rule =
        |text: &str| Regex::new(text).map_err(|error| Failure::message(format!("invalid pattern {text:?}: {error}")));
    text.split(',').map(rule).collect()
}

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let filter = if flags.on("disable-filter") {
        if flags.text("unix-socket").is_empty() {
            terminal::log(
                'W',
                "proxy.go:177",
                "Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious",
            );
        }
        None
    } else {
        Some(Filter {
            accept_hosts: rules(flags.text("accept-hosts"))?,
            accept_paths: rules(flags.text("accept-paths"))?,
            reject_paths: rules(flags.text("reject-paths"))?,
            reject_methods: rules(flags.text("reject-methods"))?,
        })
    };
    let prefix = |flag: &str| {
        let text = flags.text(flag);
        let text = if text.starts_with('/') { text.to_string() } else { format!("/{text}") };
        if text.ends_with('/') { text } else { format!("{text}/") }
    };
    let files = Some(flags.text("www")).filter(|folder| !folder.is_empty());
    let files = files.map(|folder| (PathBuf::from(folder), prefix("www-prefix")));
    let proxy = Arc::new(Proxy { client: session.client()?.clone(), filter, api: prefix("api-prefix"), files });
    let socket = flags.text("unix-socket");
    if !socket.is_empty() {
        // A socket that an earlier run left behind is in the way.
        let _ = std::fs::remove_file(socket);
        let listener = tokio::net::UnixListener::bind(socket)
            .map_err(|error| Failure::message(format!("listen unix {socket}: bind: {}", go_io_error(&error))))?;
        terminal::outln(&format!("Starting to serve on {socket}"));
        loop {
            let (stream, _) = listener.accept().await?;
            serve(proxy.clone(), stream);
        }
    }
    let port = flags.integer("port");
    if u16::try_from(port).is_err() {
        return Err(Failure::message(format!("listen tcp: address {port}: invalid port")));
    }
    let address = format!("{}:{port}", flags.text("address"));
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|error| Failure::message(format!("listen tcp {address}: bind: {}", go_io_error(&error))))?;
    terminal::outln(&format!("Starting to serve on {}", listener.local_addr()?));
    loop {
        let (stream, _) = listener.accept().await?;
        serve(proxy.clone(), stream);
    }
}

fn serve(proxy: Arc<Proxy>, stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static) {
    tokio::spawn(async move {
        let service = hyper::service::service_fn(move |request| {
            let proxy = proxy.clone();
            async move { Ok::<Answer, Infallible>(proxy.answer(request).await) }
        });
        // Whoever goes away in the middle has nobody to be told.
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    });
}

fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = code;
    answer
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_string();
        let host = request.headers().get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let host = without_port(host);
        if let Some(filter) = &self.filter
            && !filter.accepts(request.method().as_str(), host, &path)
        {
            return text(StatusCode::FORBIDDEN, "Forbidden\n");
        }
        if let Some((folder, prefix)) = &self.files
            && let Some(inner) = path.strip_prefix(prefix.as_str())
        {
            return match file(folder, inner) {
                Some(bytes) => text(StatusCode::OK, bytes),
                None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            };
        }
        match path.strip_prefix(self.api.as_str()) {
            Some(inner) => self.pass_on(request, format!("/{inner}")).await,
            None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn pass_on(&self, request: Request<Incoming>, path: String) -> Answer {
        let (mut parts, body) = request.into_parts();
        let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let Ok(uri) = format!("{path}{query}").parse() else { return text(StatusCode::BAD_REQUEST, "bad path\n") };
        parts.uri = uri;
        // What is between this program and its caller, and who the caller says to be, does not go on.
        for name in ["host", "authorization", "connection", "accept-encoding"] {
            parts.headers.remove(name);
        }
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        };
        parts.headers.remove("content-length");
        let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        match self.client.send(request).await {
            Ok(answer) => {
                let (mut parts, body) = answer.into_parts();
                parts.headers.remove("transfer-encoding");
                Response::from_parts(parts, body.boxed_unsync())
            }
            Err(error) => text(StatusCode::BAD_GATEWAY, format!("{error}\n")),
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// A file of the folder, and never one outside of it.
fn file(folder: &Path, inner: &str) -> Option<Vec<u8>> {
    let inner = percent_encoding::percent_decode_str(inner).decode_utf8().ok()?;
    let inner = Path::new(inner.as_ref());
    if inner.components().any(|part| !matches!(part, Component::Normal(_))) {
        return None;
    }
    let path = folder.join(inner);
    let path = if path.is_dir() { path.join("index.html") } else { path };
    std::fs::read(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_accepted_passes() {
        let of =
            |name: &str| FLAGS.iter().find(|flag| flag.name == name).map(|flag| rules(flag.default).unwrap()).unwrap();
        let filter = Filter {
            accept_hosts: of("accept-hosts"),
            accept_paths: of("accept-paths"),
            reject_paths: of("reject-paths"),
            reject_methods: of("reject-methods"),
        };
        assert!(filter.accepts("GET", "localhost", "/api/v1/pods"));
        assert!(filter.accepts("POST", "127.0.0.1", "/api/v1/pods"));
        assert!(!filter.accepts("GET", "example.com", "/api"));
        assert!(!filter.accepts("GET", "localhost", "/api/v1/namespaces/a/pods/b/exec"));
        assert_eq!((without_port("[::1]:8001"), without_port("a:80"), without_port("a")), ("[::1]", "a", "a"));
        assert_eq!(file(Path::new("/"), "../etc/passwd"), None);
    }
}
