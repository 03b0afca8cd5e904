//! A container whose rules say so has all others restarted with it, init containers included, in the sandbox they have.

use super::{Action, Because, Input, Kill, Plan};

/// Ends what runs since before the restart; tells whether something does. Only then anything is started anew.
pub(super) fn plan(input: &Input, plan: &mut Plan) -> bool {
    let mut running = false;
    for container in input.observed.running_since_before_restart(input.pod, input.memory) {
        running = true;
        if !input.memory.killing.contains(&container.id) {
            plan.push(Action::Kill(Kill {
                id: container.id.clone(),
                name: container.name.clone(),
                message: "killing".to_owned(),
                grace_seconds: 0,
                after: Vec::new(),
                because: Because::Changed,
            }));
        }
    }
    running
}
