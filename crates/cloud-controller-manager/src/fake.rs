//! A cloud that remembers what was asked of it.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service};
use parking_lot::Mutex;

use crate::cloud::{Balance, CloudError, LoadBalancers};

#[derive(Default)]
pub(crate) struct FakeBalancers {
    pub asked: Mutex<Vec<String>>,
    pub fails: bool,
    pub withdraws: bool,
}

#[async_trait]
impl LoadBalancers for FakeBalancers {
    fn checks_health(&self) -> bool {
        false
    }

    fn refusal_withdraws(&self) -> bool {
        self.withdraws
    }

    async fn ensure(&self, balance: &Balance<'_>) -> Result<LoadBalancerStatus, CloudError> {
        let nodes: Vec<&str> = balance.nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        self.asked.lock().push(format!("ensure {}", nodes.join(",")));
        if self.fails {
            return Err(CloudError("no quota".into()));
        }
        let ingress = LoadBalancerIngress { ip: Some("192.0.2.1".into()), ..LoadBalancerIngress::default() };
        Ok(LoadBalancerStatus { ingress: Some(vec![ingress]) })
    }

    async fn delete(&self, _service: &Service) -> Result<(), CloudError> {
        self.asked.lock().push("delete".into());
        if self.fails { Err(CloudError("no quota".into())) } else { Ok(()) }
    }
}
