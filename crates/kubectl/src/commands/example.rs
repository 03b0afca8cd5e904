//! The command of CONTRIBUTING.md, compiled and run by the tests only.

use crate::command::Command;
use crate::failure::{self, Result};
use crate::resource::select::{Query, SELECTOR};
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "count",
    group: super::OTHER,
    short: "Count the objects of a type.",
    examples: "kubectl count pods -l app=web",
    usage: "TYPE [options]",
    flags: &[SELECTOR],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

async fn run(session: &Session) -> Result<()> {
    let [kind] = session.arguments() else { return session.usage("exactly one TYPE is required") };
    let (infos, failures) = session.infos(&Query::from(session)).await?;
    failure::all(failures)?;
    terminal::outln(&format!("{kind}\t{}", infos.len()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::Fake;

    #[test]
    fn objects_are_counted() {
        static ROOT: Command = Command { name: "kubectl", subcommands: &[&COMMAND], ..Command::EMPTY };
        let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
        let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [pod("a"), pod("b")]});
        let fake = Fake::new().answer("GET /api/v1/namespaces/default/pods", list);
        let ran = fake.run_in(&ROOT, "count pods -l app=web");
        assert_eq!((ran.out.as_str(), ran.code), ("pods\t2\n", 0));
        assert_eq!(ran.requests[0].query("labelSelector"), "app=web");
        let ran = Fake::new().run_in(&ROOT, "count");
        assert_eq!(ran.err, "error: exactly one TYPE is required\nSee 'kubectl count -h' for help and examples\n");
    }
}
