//! What a command is: its names, its flags, its help, what it runs.

use futures::future::LocalBoxFuture;

use crate::failure::Result;
use crate::flags::Flag;
use crate::session::Session;

pub(crate) type Run = for<'a> fn(&'a Session) -> LocalBoxFuture<'a, Result<()>>;

pub(crate) struct Command {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// The heading of `kubectl help` under which it stands.
    pub group: &'static str,
    pub short: &'static str,
    pub examples: &'static str,
    /// What may stand behind the name.
    pub usage: &'static str,
    pub flags: &'static [&'static [Flag]],
    pub subcommands: &'static [&'static Command],
    pub run: Option<Run>,
}

impl Command {
    pub(crate) const EMPTY: Command = Command {
        name: "",
        aliases: &[],
        group: "",
        short: "",
        examples: "",
        usage: "[options]",
        flags: &[],
        subcommands: &[],
        run: None,
    };

    fn answers_to(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&'static Command> {
        self.subcommands.iter().copied().find(|command| command.answers_to(name))
    }
}

/// Where discovery is kept, unless somebody says otherwise.
pub(crate) const CACHE: &str = "$HOME/.kube/cache";

/// Flags that every command takes.
pub(crate) const GLOBAL: &[Flag] = &[
    Flag::text("as", "", "Impersonate this user."),
    Flag::array("as-group", "Impersonate this group; may be repeated."),
    Flag::text("as-uid", "", "Impersonate this UID."),
    Flag::array("as-user-extra", "Impersonate with this extra, as key=value; may be repeated."),
    Flag::text("cache-dir", CACHE, "Keep discovery in this folder."),
    Flag::text("certificate-authority", "", "Trust the certificate authorities of this file."),
    Flag::text("client-certificate", "", "Authenticate with the client certificate of this file."),
    Flag::text("client-key", "", "Use the client key of this file."),
    Flag::text("cluster", "", "Use this cluster of the kubeconfig."),
    Flag::text("context", "", "Use this context of the kubeconfig."),
    Flag::switch("disable-compression", "Do not ask the server to compress."),
    Flag::switch("insecure-skip-tls-verify", "Do not check the server's certificate."),
    Flag::text("kubeconfig", "", "Use this kubeconfig file."),
    Flag::text(
        "kuberc",
        "",
        "Path to the kuberc file to use for preferences. This can be disabled by exporting KUBECTL_KUBERC=false feature gate or turning off the feature KUBERC=off.",
    ),
    Flag::duration("log-flush-frequency", "5s", "Accepted and without effect: log lines are written at once."),
    Flag::switch("match-server-version", "Require the server's version to be the client's."),
    Flag::text("namespace", "", "Run in this namespace.").short('n'),
    Flag::text("password", "", "Authenticate with this password."),
    Flag::text("profile", "none", "Accepted and without effect: no profile is written."),
    Flag::text("profile-output", "profile.pprof", "Accepted and without effect: no profile is written."),
    Flag::text("request-timeout", "0", "Fail a request after this time; 0 for no limit."),
    Flag::text("server", "", "Connect to the API server at this address.").short('s'),
    Flag::text("tls-server-name", "", "Expect this name in the server's certificate."),
    Flag::text("token", "", "Authenticate with this bearer token."),
    Flag::text("user", "", "Use this user of the kubeconfig."),
    Flag::text("username", "", "Authenticate as this user with basic authentication."),
    Flag::integer("v", "0", "Log more with a higher level.").short('v'),
    Flag::plain("vmodule", "Accepted and without effect: nothing is logged file by file."),
    Flag::switch("warnings-as-errors", "Exit with code 1 after a warning of the server."),
    Flag::switch("help", "Show the help of this command.").short('h'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_answer_to_their_aliases() {
        static INNER: Command = Command { name: "pod", aliases: &["po"], ..Command::EMPTY };
        static OUTER: Command = Command { name: "top", subcommands: &[&INNER], ..Command::EMPTY };
        assert!(OUTER.find("pod").is_some() && OUTER.find("po").is_some() && OUTER.find("pods").is_none());
    }
}
