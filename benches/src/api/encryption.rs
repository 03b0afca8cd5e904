//! What a write costs when its value is encrypted, by each provider that has its keys in the file and by a KMS plugin, beside one that
//! is not.

use std::time::Duration;

use testkit::KmsPlugin;

use crate::load::{Bounds, Protocol};
use crate::report;

use super::{ready_server_with, writes};

const CLIENTS: usize = 16;
const CREATES_MAX: usize = 20_000;
const RUN: Duration = Duration::from_secs(4);
/// 32 bytes that protect nothing.
const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

pub async fn costs() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let plugin = KmsPlugin::start(&folder.path().join("kms.sock"))?;
    for provider in ["none", "aescbc", "aesgcm", "secretbox", "kms"] {
        let file = folder.path().join(format!("{provider}.yaml"));
        let keys = match provider {
            "kms" => format!("{{kms: {{apiVersion: v2, name: bench, endpoint: '{}'}}}}", plugin.endpoint()),
            _ => format!("{{{provider}: {{keys: [{{name: key1, secret: {SECRET}}}]}}}}"),
        };
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [pods]\n  providers: [{keys}]\n"
        );
        std::fs::write(&file, text)?;
        let flag = format!("--encryption-provider-config={}", file.display());
        let flags: &[&str] = if provider == "none" { &[] } else { &[&flag] };
        let server = ready_server_with(flags).await?;
        let bounds = Bounds { requests_each_max: CREATES_MAX / CLIENTS, time_max: RUN };
        let outcome = writes::create(&server, Protocol::Http1, CLIENTS, bounds, provider).await?;
        let name = |what: &str| format!("create pods, encryption {provider}: {what}");
        report::line(&name("rate"), outcome.per_second(), "/s");
        report::line(&name("latency p99"), outcome.latencies.ms(0.99), "ms");
        report::line(&name("processor time each"), outcome.cpu_ms_each(), "ms");
    }
    Ok(())
}
