//! Flags of the API server that it has under upstream's names: how many requests run at once, and what is audited.

#[derive(clap::Args, Clone)]
pub struct Flags {
    /// Divide the server among requests by FlowSchemas and priority levels; otherwise two plain limits hold.
    #[arg(long, env = "KNARR_ENABLE_PRIORITY_AND_FAIRNESS", default_value_t = true, action = clap::ArgAction::Set,
        num_args = 0..=1, default_missing_value = "true")]
    enable_priority_and_fairness: bool,
    /// How many reading requests run at once; together with the mutating ones, the seats that priority levels divide.
    #[arg(long, env = "KNARR_MAX_REQUESTS_INFLIGHT", default_value_t = 400)]
    max_requests_inflight: u32,
    /// How many mutating requests run at once.
    #[arg(long, env = "KNARR_MAX_MUTATING_REQUESTS_INFLIGHT", default_value_t = 200)]
    max_mutating_requests_inflight: u32,
}

impl Flags {
    pub fn flow(&self) -> kube_apiserver::flowcontrol::Config {
        kube_apiserver::flowcontrol::Config {
            enabled: self.enable_priority_and_fairness,
            reading_max: self.max_requests_inflight,
            writing_max: self.max_mutating_requests_inflight,
            ..Default::default()
        }
    }
}
