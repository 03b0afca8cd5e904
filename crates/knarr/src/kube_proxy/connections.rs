//! Conntrack settings: by flags of upstream's names, or by the file's `conntrack`.

use std::time::Duration;

use kube_proxy::Conntrack;
use serde::{Deserialize, Deserializer};

use crate::leader::duration;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Maximum number of conntrack entries per CPU; 0 leaves the kernel's setting.
    #[arg(long, value_name = "COUNT")]
    conntrack_max_per_core: Option<u32>,
    /// Minimum number of conntrack entries, regardless of CPUs.
    #[arg(long, value_name = "COUNT")]
    conntrack_min: Option<u32>,
    /// Conntrack timeout of established TCP connections; 0 leaves the kernel's setting.
    #[arg(long, value_parser = duration, default_value = "24h")]
    conntrack_tcp_timeout_established: Duration,
    /// Conntrack timeout of TCP connections in CLOSE_WAIT; 0 leaves the kernel's setting.
    #[arg(long, value_parser = duration, default_value = "1h")]
    conntrack_tcp_timeout_close_wait: Duration,
    /// Accept TCP packets outside of the connection's window (conntrack liberal mode).
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    conntrack_tcp_be_liberal: bool,
    /// Conntrack timeout of unanswered UDP; 0 leaves the kernel's setting.
    #[arg(long, value_parser = duration, default_value = "0s")]
    conntrack_udp_timeout: Duration,
    /// Conntrack timeout of answered UDP streams; 0 leaves the kernel's setting.
    #[arg(long, value_parser = duration, default_value = "0s")]
    conntrack_udp_timeout_stream: Duration,
}

impl Flags {
    pub fn settings(&self) -> Conntrack {
        let usual = Conntrack::default();
        Conntrack {
            max_per_core: self.conntrack_max_per_core.unwrap_or(usual.max_per_core),
            min: self.conntrack_min.unwrap_or(usual.min),
            exact: self.conntrack_max_per_core.is_some() || self.conntrack_min.is_some(),
            tcp_established: Some(self.conntrack_tcp_timeout_established),
            tcp_close_wait: Some(self.conntrack_tcp_timeout_close_wait),
            tcp_be_liberal: self.conntrack_tcp_be_liberal,
            udp: Some(self.conntrack_udp_timeout),
            udp_stream: Some(self.conntrack_udp_timeout_stream),
        }
    }
}

/// The field `conntrack` of a KubeProxyConfiguration. What it does not say is as flags say.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Fields {
    max_per_core: Option<u32>,
    min: Option<u32>,
    tcp_be_liberal: bool,
    #[serde(deserialize_with = "time")]
    tcp_established_timeout: Option<Duration>,
    #[serde(deserialize_with = "time")]
    tcp_close_wait_timeout: Option<Duration>,
    #[serde(deserialize_with = "time")]
    udp_timeout: Option<Duration>,
    #[serde(deserialize_with = "time")]
    udp_stream_timeout: Option<Duration>,
}

impl Fields {
    pub fn apply(self, flags: &mut Flags) {
        flags.conntrack_max_per_core = self.max_per_core.or(flags.conntrack_max_per_core);
        flags.conntrack_min = self.min.or(flags.conntrack_min);
        flags.conntrack_tcp_be_liberal |= self.tcp_be_liberal;
        for (field, flag) in [
            (self.tcp_established_timeout, &mut flags.conntrack_tcp_timeout_established),
            (self.tcp_close_wait_timeout, &mut flags.conntrack_tcp_timeout_close_wait),
            (self.udp_timeout, &mut flags.conntrack_udp_timeout),
            (self.udp_stream_timeout, &mut flags.conntrack_udp_timeout_stream),
        ] {
            *flag = field.unwrap_or(*flag);
        }
    }
}

/// A time as Go writes it, or nothing.
fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text: Option<String> = Deserialize::deserialize(from)?;
    text.map(|text| duration(&text)).transpose().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn flags_and_fields_become_settings_of_the_kernel() {
        let read = |words: &[&str]| Line::try_parse_from([&["x"], words].concat()).unwrap().flags;
        let usual = Conntrack { udp: Some(Duration::ZERO), udp_stream: Some(Duration::ZERO), ..Conntrack::default() };
        assert_eq!(read(&[]).settings(), usual);
        let mut flags = read(&["--conntrack-max-per-core=1000", "--conntrack-min=5", "--conntrack-tcp-be-liberal"]);
        let settings = flags.settings();
        assert_eq!(
            (settings.max_per_core, settings.min, settings.exact, settings.tcp_be_liberal),
            (1000, 5, true, true)
        );
        let fields = json!({"maxPerCore": 7, "min": null, "tcpEstablishedTimeout": "2h0m0s", "udpTimeout": "30s"});
        serde_json::from_value::<Fields>(fields).unwrap().apply(&mut flags);
        let settings = flags.settings();
        assert_eq!((settings.max_per_core, settings.min), (7, 5));
        assert_eq!(settings.tcp_established, Some(Duration::from_secs(7200)));
        assert_eq!(settings.udp, Some(Duration::from_secs(30)));
        assert!(serde_json::from_value::<Fields>(json!({"udpTimeout": "long"})).is_err());
    }
}
