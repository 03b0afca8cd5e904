//! Tells running containers which processors they may use, when that has changed: the pool shrinks when somebody gets processors for himself.

use std::collections::HashSet;
use std::sync::Arc;

use cri::v1;

use super::Managers;
use crate::pods::Pods;

impl Managers {
    /// Until it is dropped. What failed is tried again after the reconcile period.
    pub async fn run(self: Arc<Managers>, runtime: Arc<dyn cri::Runtime>, pods: Arc<Pods>) {
        if self.state.lock().cpu.is_none() {
            return std::future::pending().await;
        }
        let mut tick = tokio::time::interval(self.settings.cpu_reconcile_period);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.changed.notified() => {}
            }
            self.reconcile(&*runtime, &pods).await;
        }
    }

    /// A container was made with these processors; it hears of what has changed meanwhile.
    pub(crate) fn started(&self, id: &str, cpus: Option<String>) {
        let Some(cpus) = cpus else { return };
        self.applied.lock().insert(id.to_owned(), cpus);
        self.changed.notify_one();
    }

    async fn reconcile(&self, runtime: &dyn cri::Runtime, pods: &Pods) {
        let mut running = HashSet::new();
        for state in pods.list() {
            let uid = crate::pod::spec::uid(&state.pod);
            for container in state.containers.iter().filter(|container| container.running) {
                running.insert(container.id.clone());
                let Some(cpus) = self.cpus_of(uid, &container.name) else { continue };
                if self.applied.lock().get(&container.id) == Some(&cpus) {
                    continue;
                }
                let linux = v1::LinuxContainerResources { cpuset_cpus: cpus.clone(), ..Default::default() };
                match runtime.update_container_resources(&container.id, linux).await {
                    Ok(()) => drop(self.applied.lock().insert(container.id.clone(), cpus)),
                    Err(error) => {
                        let pod = crate::pod::spec::full_name(&state.pod);
                        tracing::warn!(pod, container = container.name, cpus, %error, "cannot update cpuset of container");
                    }
                }
            }
        }
        // One that was started in between is told again, which does no harm.
        self.applied.lock().retain(|id, _| running.contains(id));
    }
}
