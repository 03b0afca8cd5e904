// The made-up cluster of the mock: namespaces, nodes, workloads, many pods, and names that nobody should trust.

import { randomUUID } from 'node:crypto';

export const hostile = {
  markup: '<img src=x onerror="alert(1)"><script>alert(2)</script>', escape: '\u001b[2J\u001b]0;owned\u0007cleared?', bidi: 'invoice\u202egpj.exe\u202c',
};
const kind = (group, version, resource, kind, namespaced = true, shortNames = [], custom = false) => ({ group, version, resource, kind, namespaced, verbs: ['get', 'list', 'watch', 'create', 'update', 'patch', 'delete'], shortNames, categories: [], custom });
const KINDS = [
  kind('', 'v1', 'pods', 'Pod', true, ['po']), kind('', 'v1', 'nodes', 'Node', false, ['no']), kind('', 'v1', 'namespaces', 'Namespace', false, ['ns']), kind('', 'v1', 'events', 'Event', true, ['ev']),
  kind('', 'v1', 'services', 'Service', true, ['svc']), kind('', 'v1', 'configmaps', 'ConfigMap', true, ['cm']), kind('', 'v1', 'secrets', 'Secret'), kind('', 'v1', 'persistentvolumeclaims', 'PersistentVolumeClaim', true, ['pvc']),
  kind('', 'v1', 'persistentvolumes', 'PersistentVolume', false, ['pv']), kind('', 'v1', 'serviceaccounts', 'ServiceAccount', true, ['sa']), kind('apps', 'v1', 'deployments', 'Deployment', true, ['deploy']), kind('apps', 'v1', 'replicasets', 'ReplicaSet', true, ['rs']),
  kind('apps', 'v1', 'statefulsets', 'StatefulSet', true, ['sts']), kind('apps', 'v1', 'daemonsets', 'DaemonSet', true, ['ds']), kind('batch', 'v1', 'jobs', 'Job'), kind('batch', 'v1', 'cronjobs', 'CronJob', true, ['cj']),
  kind('networking.k8s.io', 'v1', 'ingresses', 'Ingress', true, ['ing']), kind('networking.k8s.io', 'v1', 'networkpolicies', 'NetworkPolicy', true, ['netpol']), kind('discovery.k8s.io', 'v1', 'endpointslices', 'EndpointSlice'),
  kind('rbac.authorization.k8s.io', 'v1', 'roles', 'Role'), kind('rbac.authorization.k8s.io', 'v1', 'rolebindings', 'RoleBinding'), kind('rbac.authorization.k8s.io', 'v1', 'clusterroles', 'ClusterRole', false), kind('rbac.authorization.k8s.io', 'v1', 'clusterrolebindings', 'ClusterRoleBinding', false),
  kind('storage.k8s.io', 'v1', 'storageclasses', 'StorageClass', false, ['sc']), kind('example.com', 'v1', 'lighthouses', 'Lighthouse', true, [], true),
];

export function healthOf(resource, object) {
  if (resource === 'pods') {
    if (object.status.containerStatuses?.some((one) => one.state?.waiting?.reason === 'CrashLoopBackOff')) return 'failing';
    return object.status.phase === 'Running' ? 'ok' : object.status.phase === 'Pending' ? 'warning' : 'ok';
  }
  if (resource === 'nodes') return object.spec.unschedulable ? 'warning' : 'ok';
  if (resource === 'deployments') return (object.status.readyReplicas ?? 0) >= object.spec.replicas ? 'ok' : 'progressing';
  return resource === 'events' && object.type === 'Warning' ? 'warning' : 'ok';
}

const column = (name, type = 'string', priority = 0) => ({ name, type, priority, description: '' });
export function table(of) {
  const age = (object) => object.metadata.creationTimestamp;
  const name = (object) => object.metadata.name;
  switch (of.resource) {
    case 'pods': return { columns: ['Name', 'Ready', 'Status', 'Restarts', 'Age'].map((one) => column(one)).concat([column('IP', 'string', 1), column('Node')]), cells: (o) => [name(o), o.status.phase === 'Running' && healthOf('pods', o) === 'ok' ? '2/2' : '0/2', o.status.containerStatuses?.[0]?.state?.waiting?.reason ?? o.status.phase, o.status.containerStatuses?.[0]?.restartCount ?? 0, age(o), o.status.podIP, o.spec.nodeName ?? '<none>'] };
    case 'nodes': return { columns: ['Name', 'Status', 'Roles', 'Age', 'Version'].map((one) => column(one)), cells: (o) => [name(o), `Ready${o.spec.unschedulable ? ',SchedulingDisabled' : ''}`, '<none>', age(o), 'v1.36.4'] };
    case 'deployments': return { columns: ['Name', 'Ready', 'Up-to-date', 'Available', 'Age'].map((one) => column(one)), cells: (o) => [name(o), `${o.status.readyReplicas ?? 0}/${o.spec.replicas}`, o.status.updatedReplicas, o.status.availableReplicas, age(o)] };
    case 'services': return { columns: ['Name', 'Type', 'Cluster-IP', 'External-IP', 'Port(s)', 'Age'].map((one) => column(one)), cells: (o) => [name(o), o.spec.type, o.spec.clusterIP, '<none>', '80/TCP', age(o)] };
    case 'events': return { columns: ['Last Seen', 'Type', 'Reason', 'Object', 'Message'].map((one) => column(one)), cells: (o) => ['3m', o.type, o.reason, `pod/${o.involvedObject.name}`, o.message] };
    default: return { columns: [column('Name'), column('Age')], cells: (o) => [name(o), age(o)] };
  }
}

export function world(podCount) {
  let revision = 1000;
  const store = new Map(KINDS.map((one) => [one.resource, new Map()]));
  const listeners = new Set();
  // Earlier states of what is not made in thousands.
  const history = new Map();
  const put = (resource, object) => {
    const own = KINDS.find((one) => one.resource === resource);
    const full = { apiVersion: own.group ? `${own.group}/${own.version}` : own.version, kind: own.kind, ...object, metadata: { creationTimestamp: new Date(Date.now() - ((revision * 7919) % 900_000) * 1000).toISOString(), uid: randomUUID(), ...object.metadata, resourceVersion: String(++revision) } };
    store.get(resource).set(`${full.metadata.namespace ?? ''}/${full.metadata.name}`, full);
    const key = `${resource} ${full.metadata.namespace ?? ''}/${full.metadata.name}`;
    if (resource !== 'pods') history.set(key, [{ revision: full.metadata.resourceVersion, time: new Date().toISOString(), manager: 'knarr-dashboard', object: structuredClone(full) }, ...(history.get(key) ?? [])].slice(0, 100));
    for (const told of listeners) told();
    return full;
  };
  const drop = (resource, object) => { store.get(resource).delete(`${object.metadata.namespace ?? ''}/${object.metadata.name}`); for (const told of listeners) told(); };
  for (const name of ['default', 'kube-system', 'shop', 'billing', 'load']) put('namespaces', { metadata: { name, labels: { team: name } }, status: { phase: 'Active' } });
  for (let at = 1; at <= 6; at++) put('nodes', { metadata: { name: `harbor-${at}`, labels: { 'kubernetes.io/hostname': `harbor-${at}`, 'topology.kubernetes.io/zone': `quay-${at % 3}` } }, spec: { podCIDRs: [`10.42.${at}.0/24`] }, status: { conditions: ['Ready', 'MemoryPressure', 'DiskPressure', 'PIDPressure'].map((type) => ({ type, status: type === 'Ready' ? 'True' : 'False', reason: 'KubeletOk', message: 'kubelet is posting ready status', lastTransitionTime: new Date(Date.now() - 9e7).toISOString() })), addresses: [{ type: 'InternalIP', address: `10.0.0.${at}` }, { type: 'Hostname', address: `harbor-${at}` }], capacity: { cpu: '16', memory: '65536Mi', pods: '10000' }, allocatable: { cpu: '15200m', memory: '62000Mi', pods: '10000' }, nodeInfo: { kubeletVersion: 'v1.36.4', containerRuntimeVersion: 'knarr://0.1', osImage: 'Debian GNU/Linux 12', kernelVersion: '6.1.0', architecture: 'amd64' } } });
  const template = (app, image) => ({ metadata: { labels: { app } }, spec: { containers: [{ name: 'app', image, ports: [{ containerPort: 8080 }], resources: { requests: { cpu: '100m', memory: '64Mi' }, limits: { memory: '128Mi' } }, readinessProbe: { httpGet: { path: '/ready', port: 8080 } }, livenessProbe: { tcpSocket: { port: 8080 } }, volumeMounts: [{ name: 'data', mountPath: '/data' }] }, { name: 'proxy', image: 'registry.example/proxy:3' }] } });
  const pod = (namespace, name, app, at, more = {}) => put('pods', {
    metadata: { namespace, name, labels: { app, 'pod-template-hash': '5d9c7b' }, ownerReferences: [{ apiVersion: 'apps/v1', kind: 'ReplicaSet', name: `${app}-5d9c7b`, uid: 'x', controller: true }] },
    spec: { nodeName: `harbor-${(at % 6) + 1}`, serviceAccountName: 'default', restartPolicy: 'Always', ...template(app, `registry.example/${app}:1.4.2`).spec, volumes: [{ name: 'data', persistentVolumeClaim: { claimName: 'data' } }, { name: 'settings', configMap: { name: 'settings' } }] },
    status: { phase: 'Running', qosClass: 'Burstable', podIP: `10.42.${at % 6}.${at % 250}`, podIPs: [{ ip: `10.42.${at % 6}.${at % 250}` }], conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: new Date(Date.now() - 4e6).toISOString() }], containerStatuses: ['app', 'proxy'].map((one) => ({ name: one, ready: true, restartCount: 0, state: { running: { startedAt: new Date(Date.now() - 4e6).toISOString() } } })) }, ...more,
  });
  for (const [namespace, app, replicas] of [['shop', 'frontend', 3], ['shop', 'cart', 3], ['shop', 'payments', 2], ['billing', 'ledger', 2]]) {
    const owner = put('deployments', { metadata: { namespace, name: app, labels: { app }, annotations: { 'deployment.kubernetes.io/revision': '3' }, managedFields: [{ manager: 'kubectl', operation: 'Apply', fieldsType: 'FieldsV1', fieldsV1: {} }] }, spec: { replicas, selector: { matchLabels: { app } }, strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: '25%', maxUnavailable: '25%' } }, template: template(app, `registry.example/${app}:1.4.2`) }, status: { replicas, readyReplicas: replicas - (app === 'payments' ? 1 : 0), updatedReplicas: replicas, availableReplicas: replicas - (app === 'payments' ? 1 : 0), conditions: [{ type: 'Available', status: 'True', reason: 'MinimumReplicasAvailable', message: 'Deployment has minimum availability.', lastTransitionTime: new Date(Date.now() - 9e6).toISOString() }, { type: 'Progressing', status: 'True', reason: 'NewReplicaSetAvailable', message: `ReplicaSet "${app}-5d9c7b" has successfully progressed.`, lastTransitionTime: new Date(Date.now() - 9e6).toISOString() }] } });
    for (const at of [3, 2, 1]) put('replicasets', { metadata: { namespace, name: `${app}-${at === 3 ? '5d9c7b' : `old${at}`}`, labels: { app }, annotations: { 'deployment.kubernetes.io/revision': String(at), 'kubernetes.io/change-cause': at === 2 ? 'set image to 1.4.1' : '' }, ownerReferences: [{ apiVersion: 'apps/v1', kind: 'Deployment', name: app, uid: owner.metadata.uid, controller: true }] }, spec: { replicas: at === 3 ? replicas : 0, template: template(app, `registry.example/${app}:1.4.${at - 1}`) }, status: {} });
    put('services', { metadata: { namespace, name: app }, spec: { type: 'ClusterIP', clusterIP: `10.43.0.${app.length}`, clusterIPs: [`10.43.0.${app.length}`], selector: { app }, ports: [{ name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' }] } });
    const names = [];
    for (let at = 0; at < replicas; at++) names.push(pod(namespace, `${app}-5d9c7b-${at}k${app.length}f2`, app, at + app.length, app === 'payments' && at === 1 ? { status: { phase: 'Running', podIPs: [], conditions: [{ type: 'Ready', status: 'False', reason: 'ContainersNotReady', message: 'containers with unready status: [app]', lastTransitionTime: new Date(Date.now() - 14e5).toISOString() }], containerStatuses: [{ name: 'app', ready: false, restartCount: 9, state: { waiting: { reason: 'CrashLoopBackOff', message: 'back-off 5m0s restarting failed container=app' } }, lastState: { terminated: { reason: 'OOMKilled', exitCode: 137, finishedAt: new Date(Date.now() - 3e5).toISOString() } } }] } } : {}));
    put('endpointslices', { metadata: { namespace, name: `${app}-x1`, labels: { 'kubernetes.io/service-name': app } }, endpoints: names.map((one) => ({ addresses: ['10.42.0.9'], nodeName: one.spec.nodeName, conditions: { ready: true }, targetRef: { kind: 'Pod', name: one.metadata.name, namespace } })), ports: [{ port: 8080 }] });
  }
  const wanting = pod('shop', 'train-model-0', 'train', 0, { status: { phase: 'Pending', conditions: [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/6 nodes are available: 6 Insufficient cpu.', lastTransitionTime: new Date(Date.now() - 14e5).toISOString() }] } });
  delete wanting.spec.nodeName;
  put('ingresses', { metadata: { namespace: 'shop', name: 'shop' }, spec: { ingressClassName: 'knarr', rules: [{ host: 'shop.example', http: { paths: [{ path: '/', pathType: 'Prefix', backend: { service: { name: 'frontend', port: { number: 80 } } } }] } }] }, status: {} });
  put('networkpolicies', { metadata: { namespace: 'shop', name: 'only-frontend' }, spec: { podSelector: { matchLabels: { app: 'cart' } }, policyTypes: ['Ingress'], ingress: [{ from: [{ podSelector: { matchLabels: { app: 'frontend' } } }], ports: [{ protocol: 'TCP', port: 8080 }] }] } });
  put('configmaps', { metadata: { namespace: 'shop', name: 'settings', labels: { note: 'hostile' }, annotations: { 'example.com/markup': hostile.markup, 'example.com/bidi': hostile.bidi } }, data: { [hostile.markup.slice(0, 20)]: hostile.markup, 'escape.txt': hostile.escape, long: 'z'.repeat(1 << 20) } });
  put('secrets', { metadata: { namespace: 'shop', name: 'card-key' }, type: 'Opaque', data: { key: Buffer.from('top secret').toString('base64') } });
  put('persistentvolumeclaims', { metadata: { namespace: 'shop', name: 'data' }, spec: { accessModes: ['ReadWriteOnce'], storageClassName: 'local', resources: { requests: { storage: '10Gi' } } }, status: { phase: 'Bound', capacity: { storage: '10Gi' } } });
  put('lighthouses', { metadata: { namespace: 'shop', name: 'north-cape' }, spec: { height: 40, lamp: { colour: 'white', period: '5s' } }, status: { lit: true } });
  put('clusterroles', { metadata: { name: 'view' }, rules: [{ verbs: ['get', 'list', 'watch'], apiGroups: ['', 'apps'], resources: ['pods', 'services', 'deployments'] }] });
  put('rolebindings', { metadata: { namespace: 'shop', name: 'viewers' }, roleRef: { kind: 'ClusterRole', name: 'view' }, subjects: [{ kind: 'ServiceAccount', name: 'default', namespace: 'shop' }] });
  put('serviceaccounts', { metadata: { namespace: 'shop', name: 'default' } });
  put('cronjobs', { metadata: { namespace: 'billing', name: 'close-books' }, spec: { schedule: '0 3 * * *', concurrencyPolicy: 'Forbid', jobTemplate: { spec: { template: template('books', 'registry.example/books:2') } } }, status: {} });
  for (const [type, reason, message] of [['Warning', 'BackOff', 'Back-off restarting failed container app in pod payments'], ['Warning', 'FailedScheduling', '0/6 nodes are available: 6 Insufficient cpu.'], ['Normal', 'Pulled', 'Container image "registry.example/cart:1.4.2" already present on machine'], ['Warning', 'Unhealthy', `Readiness probe failed: ${hostile.markup} ${hostile.escape}`], ['Normal', 'Started', 'Container started']]) put('events', { metadata: { namespace: 'shop', name: `e-${reason}` }, type, reason, message, count: 4, lastTimestamp: new Date(Date.now() - 2e5).toISOString(), involvedObject: { apiVersion: 'v1', kind: 'Pod', namespace: 'shop', name: 'train-model-0' } });
  for (let at = 0; at < podCount; at++) pod('load', `hollow-${String(at).padStart(5, '0')}-${(at * 7919).toString(36)}`, 'hollow', at);
  return { kinds: KINDS, store, put, drop, listeners, history };
}
