//! A TracingConfiguration: where spans go, and how many. Reading it checks it, with upstream's messages.

use std::path::{Path, PathBuf};

use machinery::field::{Errors, FieldError, Problem};
use serde_json::Value;
use tonic::transport::{Channel, Endpoint};

use crate::configuration::{self, Document, Shape};

const KIND: &str = "TracingConfiguration";
/// Where collectors listen.
const ENDPOINT: &str = "localhost:4317";
const PER_MILLION_MAX: i64 = 1_000_000;
const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    ("endpoint", Shape::Text),
    ("samplingRatePerMillion", Shape::Number),
]);

#[derive(Debug, thiserror::Error)]
#[error("--tracing-config-file {path}: {source}")]
pub struct TracesError {
    path: PathBuf,
    source: configuration::Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    place: Place,
    pub per_million: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Host and port, or as much of it as there is.
    Address(String),
    /// A path, or `@name`.
    Socket(PathBuf),
}

impl Configuration {
    pub fn read(path: &Path) -> Result<Configuration, TracesError> {
        let parsed = configuration::read(path).and_then(|text| Configuration::parse(&text));
        parsed.map_err(|source| TracesError { path: path.to_owned(), source })
    }

    pub fn parse(text: &str) -> Result<Configuration, configuration::Error> {
        let document = Document::parse(text, KIND, &SHAPE)?;
        let mut errors = Errors::default();
        let rate = document.value.get("samplingRatePerMillion").and_then(Value::as_i64).unwrap_or_default();
        let wrong = match rate {
            ..0 => Some("sampling rate must be positive"),
            0..=PER_MILLION_MAX => None,
            _ => Some("sampling rate per million must be less than or equal to one million"),
        };
        if let Some(why) = wrong {
            errors.push(FieldError::new(Problem::Invalid, "samplingRatePerMillion", rate.to_string(), why));
        }
        let given = document.value.get("endpoint").and_then(Value::as_str).unwrap_or(ENDPOINT);
        let place = Place::parse(given);
        if let Err(why) = &place {
            errors.push(FieldError::new(Problem::Invalid, "endpoint", format!("{given:?}"), *why));
        }
        document.refuse(&errors)?;
        let place = place.unwrap_or(Place::Address(ENDPOINT.into()));
        Ok(Configuration { place, per_million: u32::try_from(rate).unwrap_or_default() })
    }

    /// Connects with the first spans. As upstream: without TLS.
    pub(super) fn channel(&self) -> Channel {
        match &self.place {
            Place::Socket(socket) => kms::channel(socket),
            Place::Address(address) => {
                let endpoint = Endpoint::from_shared(format!("http://{address}"));
                endpoint.unwrap_or_else(|_| Endpoint::from_static("http://localhost:4317")).connect_lazy()
            }
        }
    }
}

impl Place {
    /// What gRPC takes for a name: `host:port`, `dns:///host:port`, `unix:///path`, `unix-abstract://name`.
    fn parse(text: &str) -> Result<Place, &'static str> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("dns", text));
        let address = match scheme {
            // What stands before the path is the server that is asked for the name.
            "dns" => rest.rsplit_once('/').map_or(rest, |(_, address)| address),
            "unix" => return Ok(Place::Socket(rest.into())),
            "unix-abstract" => return Ok(Place::Socket(format!("@{rest}").into())),
            _ => {
                return Err("unsupported scheme. Options are none, dns, unix, or unix-abstract. See \
                            https://github.com/grpc/grpc/blob/master/doc/naming.md");
            }
        };
        match Endpoint::from_shared(format!("http://{address}")) {
            Ok(_) if !address.is_empty() => Ok(Place::Address(address.to_owned())),
            _ => Err("must be an address such as localhost:4317"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";

    #[test]
    fn files_say_where_spans_go_and_how_many() {
        let parsed = |rest: &str| Configuration::parse(&format!("{HEADER}{rest}")).unwrap();
        let address = |text: &str| Place::Address(text.into());
        assert_eq!(parsed(""), Configuration { place: address("localhost:4317"), per_million: 0 });
        let whole = parsed("endpoint: collector.example:4317\nsamplingRatePerMillion: 100\n");
        assert_eq!(whole, Configuration { place: address("collector.example:4317"), per_million: 100 });
        assert_eq!(parsed("endpoint: dns:///a:1").place, address("a:1"));
        assert_eq!(parsed("endpoint: dns://8.8.8.8/a:1").place, address("a:1"));
        assert_eq!(parsed("endpoint: unix:///run/otel.sock").place, Place::Socket("/run/otel.sock".into()));
        assert_eq!(parsed("endpoint: unix-abstract://otel").place, Place::Socket("@otel".into()));
        for version in ["v1beta1", "v1alpha1"] {
            let text = HEADER.replace("/v1", &format!("/{version}"));
            Configuration::parse(&text).unwrap();
        }
    }

    #[test]
    fn wrong_files_are_refused_with_line_and_field() {
        let check = |rest: &str, expected: &str| {
            let error = Configuration::parse(&format!("{HEADER}{rest}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{rest}: {error}");
        };
        check(
            "endpoint: a:1\nsamplingRatePerMillion: -1",
            "line 4: samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
        );
        check("samplingRatePerMillion: 1000001", "must be less than or equal to one million");
        check("endpoint: https://a:1", "line 3: endpoint: Invalid value: \"https://a:1\": unsupported scheme");
        check("endpoint: ''", "line 3: endpoint: Invalid value");
        check("endpoints: a", "line 3");
        check("samplingRatePerMillion: many", "line 3");
        assert!(Configuration::parse("apiVersion: v1\nkind: Pod\n").is_err());
    }
}
