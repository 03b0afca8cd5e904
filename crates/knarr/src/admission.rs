//! Which admission plugins run, by upstream's rules: some run by default, others when they are named.

use std::path::PathBuf;

use anyhow::bail;
use kube_apiserver::options::Options;

/// Upstream names it to run it; the servers of `knarr server` always do.
const NODE_RESTRICTION: &str = "NodeRestriction";

/// Upstream's that knarr does not have.
const MISSING: [&str; 1] = ["NodeDeclaredFeatureValidator"];

#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct Flags {
    /// Enable these admission plugins in addition to the default ones.
    #[arg(long, env = "KNARR_ENABLE_ADMISSION_PLUGINS", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Disable these admission plugins.
    #[arg(long, env = "KNARR_DISABLE_ADMISSION_PLUGINS", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// Read the configuration of admission plugins, such as PodSecurity, from this AdmissionConfiguration file.
    #[arg(long, env = "KNARR_ADMISSION_CONTROL_CONFIG_FILE")]
    admission_control_config_file: Option<PathBuf>,
}

impl Flags {
    /// Which plugins do not run, which run although they do not by default, and what they were told.
    pub fn options(&self, base: Options) -> anyhow::Result<Options> {
        let (enabled, disabled) = (&self.enable_admission_plugins, &self.disable_admission_plugins);
        check_names(enabled, disabled)?;
        let file = self.admission_control_config_file.as_deref();
        let admission = file.map(kube_apiserver::admission::load).transpose()?.unwrap_or_default();
        for (name, is_told) in [
            ("EventRateLimit", admission.event_rate_limit.is_some()),
            ("ImagePolicyWebhook", admission.image_policy.is_some()),
        ] {
            if !is_told && enabled.iter().any(|one| one == name) {
                bail!(
                    "--enable-admission-plugins: {name} needs a configuration in the file of --admission-control-config-file"
                );
            }
        }
        let on = enabled.iter().filter(|name| kube_apiserver::admission::is_on_demand(name)).cloned().collect();
        Ok(Options { admission_off: disabled.iter().cloned().collect(), admission_on: on, admission, ..base })
    }

    /// The same for a server that runs NodeRestriction only where it is named, as upstream's.
    pub fn options_as_upstream(&self, base: Options) -> anyhow::Result<Options> {
        let mut options = self.options(base)?;
        if !self.enable_admission_plugins.iter().any(|name| name == NODE_RESTRICTION) {
            options.admission_off.insert(NODE_RESTRICTION.to_owned());
        }
        Ok(options)
    }
}

fn check_names(enabled: &[String], disabled: &[String]) -> anyhow::Result<()> {
    let ours = kube_apiserver::admission::names();
    for name in enabled.iter().chain(disabled) {
        let known = ours.contains(&name.as_str());
        let missing = MISSING.contains(&name.as_str()) && !known;
        if !known && !missing {
            bail!("unknown admission plugin {name:?}");
        }
        if missing && enabled.contains(name) {
            bail!("--enable-admission-plugins: admission plugin {name} is not supported");
        }
        if enabled.contains(name) && disabled.contains(name) {
            bail!("admission plugin {name} is both enabled and disabled");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn plugins_are_chosen_by_upstreams_rules() {
        let words = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let check = |enabled: &str, disabled: &str, expected: Result<(&str, &str), &str>| {
            let flags = Flags {
                enable_admission_plugins: words(enabled),
                disable_admission_plugins: words(disabled),
                admission_control_config_file: None,
            };
            let found = flags.options_as_upstream(Options::default());
            let joined = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" ");
            let found = found.map(|options| (joined(options.admission_off), joined(options.admission_on)));
            let expected = expected.map(|(off, on)| (off.to_owned(), on.to_owned())).map_err(str::to_owned);
            assert_eq!(found.map_err(|error| error.to_string()), expected, "{enabled} / {disabled}");
        };
        check("", "", Ok(("NodeRestriction", "")));
        check("NodeRestriction", "", Ok(("", "")));
        check("NodeRestriction", "LimitRanger ResourceQuota", Ok(("LimitRanger ResourceQuota", "")));
        check("LimitRanger", "", Ok(("NodeRestriction", "")));
        check("AlwaysPullImages", "", Ok(("NodeRestriction", "AlwaysPullImages")));
        check("", "AlwaysPullImages", Ok(("AlwaysPullImages NodeRestriction", "")));
        check(
            "EventRateLimit",
            "",
            Err(
                "--enable-admission-plugins: EventRateLimit needs a configuration in the file of --admission-control-config-file",
            ),
        );
        check(
            "NodeDeclaredFeatureValidator",
            "",
            Err("--enable-admission-plugins: admission plugin NodeDeclaredFeatureValidator is not supported"),
        );
        check("Nonsense", "", Err("unknown admission plugin \"Nonsense\""));
        check("LimitRanger", "LimitRanger", Err("admission plugin LimitRanger is both enabled and disabled"));
    }
}
