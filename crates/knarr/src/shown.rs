//! What `/flagz` of a component shows: flags under upstream's names with the values in use, whether a command line, a file or
//! the environment set them, or nobody did.

use clap::{Arg, ArgMatches};
use component_base::metrics::process;
use component_base::status_page::{Answer, Request, StatusCode};
use component_helpers::zpages::{Flags, Zpages};

/// What a flag that holds a secret is shown as, as upstream.
const CLASSIFIED: &str = "CLASSIFIED";

/// The flags of the command that runs.
pub struct Shown {
    command: String,
    flags: Flags,
}

impl Shown {
    /// `taken` are upstream's flags that the command itself does not have.
    pub fn new(program: &clap::Command, given: &ArgMatches, taken: &Flags) -> Shown {
        let Some((name, given)) = given.subcommand() else {
            return Shown { command: String::new(), flags: Flags::new() };
        };
        let flags = program.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
        let mut flags: Flags = flags
            .filter(|flag| !flag.is_hide_set())
            .filter_map(|flag| Some((flag.get_long()?.to_owned(), value(flag, given))))
            .collect();
        flags.extend(taken.clone());
        Shown { command: name.to_owned(), flags }
    }

    /// Of a command that is one component.
    pub fn all(&self) -> Flags {
        self.flags.clone()
    }

    /// Of a component within a server or an agent, which can be told some of its flags.
    pub fn of_part(&self, part: &str) -> Flags {
        let names = crate::configuration::names_of(&self.command, part);
        names.filter_map(|(theirs, ours)| Some((theirs.to_owned(), self.flags.get(ours)?.clone()))).collect()
    }
}

fn value(flag: &Arg, given: &ArgMatches) -> String {
    let values = given.try_get_raw(flag.get_id().as_str()).ok().flatten();
    let values: Vec<_> = values.into_iter().flatten().map(|value| value.to_string_lossy()).collect();
    if flag.is_hide_env_values_set() && !values.is_empty() {
        return CLASSIFIED.into();
    }
    values.join(",")
}

/// The pages `/statusz` and `/flagz` of a component of this program.
pub fn zpages(component: &'static str, flags: Flags) -> impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static {
    let pages = Zpages::new(component, kube_apiserver::VERSION, process::start_time(), flags);
    let pages = pages.beside(["/flagz", "/healthz", "/livez", "/metrics", "/readyz"]);
    move |request| {
        let page = pages.answer(&request.path, &request.accept(), jiff::Timestamp::now())?;
        let status = StatusCode::from_u16(page.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Some(Answer::new(status, page.content_type, page.body).warning(page.warning))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn shown(line: &str) -> Shown {
        let sifted = crate::upstream::sift(line.split(' ').map(Into::into)).unwrap();
        let program = crate::configuration::command(crate::Arguments::command());
        let matches = program.clone().get_matches_from(sifted.arguments);
        Shown::new(&program, &matches, &sifted.taken)
    }

    #[test]
    fn a_component_shows_every_flag_that_it_has() {
        let flags = shown("knarr kube-scheduler --kubeconfig=/k --kube-api-qps 7 --feature-gates=AllAlpha=false").all();
        let value = |name: &str| flags.get(name).map(String::as_str);
        assert_eq!(value("kubeconfig"), Some("/k"));
        assert_eq!(value("secure-port"), Some(""));
        assert_eq!(value("leader-elect"), Some("true"));
        assert_eq!(value("kube-api-qps"), Some("7"));
        assert_eq!(value("feature-gates"), Some("AllAlpha=false"));
        let flags = shown("knarr kubelet --max-pods=7 --sync-frequency=1m --tls-cert-file /c").all();
        assert_eq!(flags.get("max-pods").map(String::as_str), Some("7"));
        assert_eq!(flags.get("sync-frequency").map(String::as_str), Some("1m"));
        assert_eq!(flags.get("field"), None);
    }

    #[test]
    fn parts_of_a_server_show_what_they_can_be_told_and_no_secret() {
        let shown = shown("knarr server --token=secret --max-pods=7 --proxy-metrics-address=none");
        assert_eq!(shown.of_part("kubelet").get("max-pods").map(String::as_str), Some("7"));
        assert_eq!(shown.of_part("kube-proxy").get("metrics-bind-address").map(String::as_str), Some("none"));
        assert_eq!(shown.of_part("kube-scheduler").get("secure-port").map(String::as_str), Some("10259"));
        assert_eq!(shown.all().get("token").map(String::as_str), Some(CLASSIFIED));
    }
}
