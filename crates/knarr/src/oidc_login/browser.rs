//! The authorization code flow with PKCE: a browser on this machine signs in, and is sent back here with a code that only
//! this process can exchange.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::claims::Claims;
use super::kept::Kept;
use super::provider::Provider;
use super::{Wanted, secret};

/// How long somebody may take to sign in.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a browser may take to say what it wants, and how much it may say.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
const LINE_MAX: u64 = 16 * 1024;

pub async fn sign_in(
    provider: &Provider,
    wanted: &Wanted,
    listen: SocketAddr,
    print_only: bool,
) -> anyhow::Result<Kept> {
    ensure!(listen.ip().is_loopback(), "--listen must be an address of this machine alone, such as 127.0.0.1:8000");
    let endpoint = provider.endpoints.authorization_endpoint.as_deref();
    let endpoint = endpoint.context("the provider offers no sign-in in a browser; try --device")?;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("listen on {listen}"))?;
    let redirect = format!("http://{}/", listener.local_addr()?);
    let (verifier, state, nonce) = (secret()?, secret()?, secret()?);
    let page = page(endpoint, wanted, &redirect, &challenge(&verifier), &state, &nonce);
    eprintln!("Sign in at {page}");
    if !print_only && let Err(error) = open(&page) {
        eprintln!("cannot open a browser: {error}; open the page yourself");
    }
    let code = tokio::time::timeout(PATIENCE, code(&listener, &state));
    let code = code.await.unwrap_or_else(|_| bail!("nobody signed in within {PATIENCE:?}"))?;
    let form = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("redirect_uri", redirect.as_str()),
        ("code_verifier", verifier.as_str()),
    ];
    let kept = provider.token(wanted, &form).await?;
    let claims = Claims::parse(&kept.id_token).context("the provider answers with something that is no token")?;
    claims.check(&claims.iss, &wanted.client_id, Some(&nonce), Timestamp::now())?;
    Ok(kept)
}

fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

fn page(endpoint: &str, wanted: &Wanted, redirect: &str, challenge: &str, state: &str, nonce: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs([
        ("response_type", "code"),
        ("client_id", &wanted.client_id),
        ("redirect_uri", redirect),
        ("scope", &wanted.scopes),
        ("state", state),
        ("nonce", nonce),
        ("code_challenge", challenge),
        ("code_challenge_method", "S256"),
    ]);
    // Providers give refresh tokens to those who ask their users for it.
    if wanted.scopes.split(' ').any(|scope| scope == "offline_access") {
        query.append_pair("prompt", "consent");
    }
    let join = if endpoint.contains('?') { '&' } else { '?' };
    format!("{endpoint}{join}{}", query.finish())
}

fn open(page: &str) -> std::io::Result<()> {
    // Nothing in the page's address is a secret: without the verifier the code is worth nothing.
    let mut command = Command::new("xdg-open");
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(|_| ())
}

/// Waits for the browser to come back.
async fn code(listener: &TcpListener, state: &str) -> anyhow::Result<String> {
    loop {
        let (stream, _) = listener.accept().await.context("accept the browser")?;
        // Browsers open connections that they do not use, and ask for icons.
        if let Ok(Some(outcome)) = tokio::time::timeout(REQUEST_WITHIN, visit(stream, state)).await {
            return outcome;
        }
    }
}

async fn visit(stream: TcpStream, state: &str) -> Option<anyhow::Result<String>> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(LINE_MAX).read_line(&mut line).await.ok()?;
    let outcome = came_back(&line, state);
    let (code, said) = match &outcome {
        None => ("404 Not Found", "Nothing is here."),
        Some(Ok(_)) => ("200 OK", "You are signed in. You may close this page."),
        Some(Err(_)) => ("400 Bad Request", "Signing in failed. The terminal says why."),
    };
    let body = format!("<!doctype html><meta charset=\"utf-8\"><title>knarr</title><p>{said}</p>");
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/html\r\nContent-Length: {}\r\nReferrer-Policy: no-referrer\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
    outcome
}

/// What the first line of a request says; nothing where somebody wants something else.
fn came_back(line: &str, state: &str) -> Option<anyhow::Result<String>> {
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let query = target.strip_prefix("/?")?;
    let value = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    // Whoever does not know it was not sent by the provider, and is not answered about the sign-in.
    if value("state").as_deref() != Some(state) {
        return None;
    }
    Some(match (value("code"), value("error")) {
        (Some(code), None) => Ok(code),
        (_, error) => {
            let why = value("error_description").unwrap_or_default();
            Err(anyhow::anyhow!("the provider refuses: {} {why}", error.unwrap_or_default()))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7636, appendix B.
    #[test]
    fn the_challenge_is_that_of_the_standard() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn only_who_knows_the_state_is_heard() {
        let check = |line: &str, expected: Option<Result<&str, ()>>| {
            let found = came_back(line, "s");
            let found = found.as_ref().map(|outcome| outcome.as_ref().map(String::as_str).map_err(|_| ()));
            assert_eq!(found, expected, "{line}");
        };
        check("GET /?code=a%2Bb&state=s HTTP/1.1\r\n", Some(Ok("a+b")));
        check("GET /?error=access_denied&state=s HTTP/1.1\r\n", Some(Err(())));
        check("GET /?state=s HTTP/1.1\r\n", Some(Err(())));
        check("GET /?code=a&state=other HTTP/1.1\r\n", None);
        check("GET /favicon.ico HTTP/1.1\r\n", None);
        check("POST /?code=a&state=s HTTP/1.1\r\n", None);
        check("", None);
    }

    #[test]
    fn the_page_asks_for_a_code() {
        let wanted = Wanted { client_id: "k c".into(), client_secret: None, scopes: "openid offline_access".into() };
        let page = page("https://a/auth?x=1", &wanted, "http://127.0.0.1:1/", "ch", "st", "no");
        let expected = "https://a/auth?x=1&response_type=code&client_id=k+c&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2F&\
                        scope=openid+offline_access&state=st&nonce=no&code_challenge=ch&code_challenge_method=S256&\
                        prompt=consent";
        assert_eq!(page, expected);
    }
}
