//! A cloud that remembers what it was asked for, as a real one does while the cluster has its troubles.

use std::collections::BTreeMap;

use async_trait::async_trait;
use cloud_controller_manager::{
    Balance, Cloud, CloudError, Instance, Instances, LoadBalancers, Route, Routes,
};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, NodeAddress, Service};
use parking_lot::Mutex;

#[derive(Default)]
pub struct FakeCloud {
    routes: Mutex<Vec<Route>>,
    /// By the Service's uid, with its namespace.
    balancers: Mutex<BTreeMap<String, (String, LoadBalancerStatus)>>,
}

impl FakeCloud {
    /// What there is, in lines that a scenario can show.
    pub fn lines(&self) -> Vec<String> {
        let routes = self.routes.lock();
        let routes = routes.iter().filter(|route| !route.node.starts_with("hostile"));
        let routes = routes.map(|route| format!("route {} {}", route.node, route.destination));
        let balancers = self.balancers.lock();
        let balancers = balancers.values().filter(|(namespace, _)| namespace == "a").map(|_| "load-balancer".to_owned());
        routes.chain(balancers).collect()
    }
}

impl Cloud for FakeCloud {
    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }
}

#[async_trait]
impl Instances for FakeCloud {
    /// Nodes whose names begin with `gone` have no machine any more.
    async fn get(&self, node: &Node) -> Result<Option<Instance>, CloudError> {
        let name = node.metadata.name.clone().unwrap_or_default();
        if name.starts_with("gone") {
            return Ok(None);
        }
        let address = NodeAddress { type_: "InternalIP".into(), address: "192.0.2.1".into() };
        Ok(Some(Instance {
            provider_id: format!("fake://{name}"),
            kind: "large".into(),
            zone: "z1".into(),
            region: "r1".into(),
            addresses: vec![address],
            shut_down: false,
        }))
    }
}

#[async_trait]
impl LoadBalancers for FakeCloud {
    fn checks_health(&self) -> bool {
        false
    }

    async fn ensure(&self, balance: &Balance<'_>) -> Result<LoadBalancerStatus, CloudError> {
        let mut balancers = self.balancers.lock();
        let next = balancers.len() + 1;
        let uid = balance.service.metadata.uid.clone().unwrap_or_default();
        let made = balancers.entry(uid).or_insert_with(|| {
            let ip = Some(format!("192.0.2.{next}"));
            let ingress = Some(vec![LoadBalancerIngress { ip, ..LoadBalancerIngress::default() }]);
            (balance.service.metadata.namespace.clone().unwrap_or_default(), LoadBalancerStatus { ingress })
        });
        Ok(made.1.clone())
    }

    async fn delete(&self, service: &Service) -> Result<(), CloudError> {
        self.balancers.lock().remove(service.metadata.uid.as_deref().unwrap_or_default());
        Ok(())
    }
}

#[async_trait]
impl Routes for FakeCloud {
    async fn list(&self) -> Result<Vec<Route>, CloudError> {
        Ok(self.routes.lock().clone())
    }

    /// A cloud gives a second route to the same place no place.
    async fn create(&self, route: &Route) -> Result<(), CloudError> {
        let mut routes = self.routes.lock();
        if routes.iter().any(|there| there.destination == route.destination) {
            return Err(CloudError(format!("there is a route to {}", route.destination)));
        }
        routes.push(route.clone());
        Ok(())
    }

    async fn delete(&self, route: &Route) -> Result<(), CloudError> {
        self.routes.lock().retain(|there| there != route);
        Ok(())
    }
}
