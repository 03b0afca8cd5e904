//! Why a server could not be asked, in the words of upstream, which are those of Go's libraries.

use std::error::Error;

use rustls::CertificateError;

use crate::config::Settings;
use crate::failure::{Failure, go_io_error};

pub(crate) fn failure(settings: &Settings, error: &kube::Error) -> Failure {
    let (scheme, rest) = settings.server.split_once("://").unwrap_or(("", &settings.server));
    let unable = |why: String| Failure::Plain(format!("Unable to connect to the server: {why}"));
    if scheme != "http" && scheme != "https" {
        return unable(format!("unsupported protocol scheme {scheme:?}"));
    }
    if let kube::Error::Auth(error) = error {
        return unable(format!("getting credentials: {}", credentials(settings, error)));
    }
    let mut last = error.to_string();
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(current) = source {
        if let Some(rustls::Error::InvalidCertificate(error)) = of_tls(current) {
            return unable(format!("tls: failed to verify certificate: x509: {}", certificate(error)));
        }
        let refused = std::io::ErrorKind::ConnectionRefused;
        if current.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == refused) {
            let host = rest.split('/').next().unwrap_or_default();
            return Failure::Plain(format!(
                "The connection to the server {host} was refused - did you specify the right host or port?"
            ));
        }
        last = current.to_string();
        source = current.source();
    }
    unable(last)
}

/// What an error of the system holds is no source of it, and it may hold another one of its kind.
fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<std::io::Error>() {
        Some(outer) => of_tls(outer.get_ref()?),
        None => error.downcast_ref::<rustls::Error>(),
    }
}

/// A program that was to say who we are and did not.
fn credentials(settings: &Settings, error: &kube::client::AuthError) -> String {
    let exec = settings.client.auth_info.exec.as_ref();
    let program = exec.and_then(|exec| exec.command.clone()).unwrap_or_default();
    match error {
        kube::client::AuthError::AuthExecStart(error) if program.contains('/') => {
            format!("exec: fork/exec {program}: {}", go_io_error(error))
        }
        kube::client::AuthError::AuthExecStart(_) => {
            let hint = exec.and_then(|exec| exec.install_hint.clone()).map(|hint| format!("\n\n{hint}"));
            format!(
                "exec: executable {program} not found\n\nIt looks like you are trying to use a client-go credential plugin that is not installed.\n\nTo learn more about this feature, consult the documentation available at:\n      https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins{}",
                hint.unwrap_or_default()
            )
        }
        kube::client::AuthError::AuthExecRun { out, .. } => {
            // Upstream lets the program write here itself.
            crate::terminal::err(&String::from_utf8_lossy(&out.stderr));
            format!("exec: executable {program} failed with exit code {}", out.status.code().unwrap_or(-1))
        }
        other => other.to_string(),
    }
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".into(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            // Go lists addresses where an address was asked for, and names where a name was.
            let expected = expected.to_str();
            let kind = if expected.parse::<std::net::IpAddr>().is_ok() { "IpAddress(" } else { "DnsName(" };
            let names = presented.iter().filter_map(|name| name.strip_prefix(kind)?.strip_suffix(')'));
            let names: Vec<&str> = names.map(|name| name.trim_matches('"')).collect();
            format!("certificate is valid for {}, not {expected}", names.join(", "))
        }
        other => rustls::Error::InvalidCertificate(other.clone()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_wanted_kind_are_listed() {
        let presented: Vec<String> =
            ["DnsName(\"a.b\")", "DnsName(\"c\")", "IpAddress(10.0.0.1)"].map(str::to_string).into();
        let check = |name: &'static str, text: &str| {
            let expected = rustls::pki_types::ServerName::try_from(name).unwrap();
            let error = CertificateError::NotValidForNameContext { expected, presented: presented.clone() };
            assert_eq!(certificate(&error), text);
        };
        check("x.y", "certificate is valid for a.b, c, not x.y");
        check("1.2.3.4", "certificate is valid for 10.0.0.1, not 1.2.3.4");
    }
}
