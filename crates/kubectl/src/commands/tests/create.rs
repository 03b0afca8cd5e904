//! `kubectl create`: workloads, services and what a namespace holds.

use super::*;

#[test]
fn a_deployment_has_labels_by_its_name() {
    makes(
        "create deployment web --image=nginx --image=example.com/team/sidecar:1 --replicas=3 --port=80",
        "
apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    app: web
  name: web
spec:
  replicas: 3
  selector:
    matchLabels:
      app: web
  strategy: {}
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - image: nginx
        name: nginx
        ports:
        - containerPort: 80
        resources: {}
      - image: example.com/team/sidecar:1
        name: sidecar
        ports:
        - containerPort: 80
        resources: {}
status: {}
",
    );
    makes(
        "create deployment web --image=busybox -- sleep 1d",
        "
apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    app: web
  name: web
spec:
  replicas: 1
  selector:
    matchLabels:
      app: web
  strategy: {}
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - command:
        - sleep
        - 1d
        image: busybox
        name: busybox
        resources: {}
status: {}
",
    );
    refuses("create deployment web", "required flag(s) \"image\" not set");
    misused("create deployment --image=a", "create deployment", "exactly one NAME is required, got 0");
}

#[test]
fn services_have_ports_by_their_numbers() {
    makes(
        "create service clusterip web --tcp=80:8080 --tcp=443",
        "
apiVersion: v1
kind: Service
metadata:
  labels:
    app: web
  name: web
spec:
  ports:
  - name: 80-8080
    port: 80
    protocol: TCP
    targetPort: 8080
  - name: \"443\"
    port: 443
    protocol: TCP
    targetPort: 443
  selector:
    app: web
  type: ClusterIP
status:
  loadBalancer: {}
",
    );
    makes(
        "create service nodeport web --tcp=80:http --node-port=30080",
        "
apiVersion: v1
kind: Service
metadata:
  labels:
    app: web
  name: web
spec:
  ports:
  - name: 80-http
    nodePort: 30080
    port: 80
    protocol: TCP
    targetPort: http
  selector:
    app: web
  type: NodePort
status:
  loadBalancer: {}
",
    );
    makes(
        "create service externalname db --external-name=db.example.com",
        "
apiVersion: v1
kind: Service
metadata:
  labels:
    app: db
  name: db
spec:
  externalName: db.example.com
  selector:
    app: db
  type: ExternalName
status:
  loadBalancer: {}
",
    );
    makes(
        "create service clusterip peers --clusterip=None",
        "
apiVersion: v1
kind: Service
metadata:
  labels:
    app: peers
  name: peers
spec:
  clusterIP: None
  selector:
    app: peers
  type: ClusterIP
status:
  loadBalancer: {}
",
    );
    refuses("create service clusterip web", "at least one tcp port specifier must be provided");
    refuses("create service loadbalancer web", "at least one tcp port specifier must be provided");
}

#[test]
fn jobs_run_once_or_by_a_schedule() {
    makes(
        "create job once --image=busybox -- date -u",
        "
apiVersion: batch/v1
kind: Job
metadata:
  name: once
spec:
  template:
    metadata: {}
    spec:
      containers:
      - command:
        - date
        - -u
        image: busybox
        name: once
        resources: {}
      restartPolicy: Never
status: {}
",
    );
    makes(
        "create cronjob often --image=busybox --schedule='*/5 * * * *' --restart=Never",
        "
apiVersion: batch/v1
kind: CronJob
metadata:
  name: often
spec:
  jobTemplate:
    metadata:
      name: often
    spec:
      template:
        metadata: {}
        spec:
          containers:
          - image: busybox
            name: often
            resources: {}
          restartPolicy: Never
  schedule: '*/5 * * * *'
status: {}
",
    );
    refuses("create job once", "either --image or --from must be specified");
    refuses("create job once --image=a --from=cronjob/b", "either --image or --from must be specified");
    refuses("create job once --from=cronjob/b -- date", "cannot specify --from and command");
}

#[test]
fn a_job_can_be_made_from_a_cron_job() {
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "often", "namespace": "default", "uid": "u"},
        "spec": {"schedule": "@daily", "jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"backoffLimit": 2, "template": {"spec": {"containers": []}}}}}});
    let made = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "now", "namespace": "default"}});
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let ran = Fake::new()
        .answer("GET /apis/batch/v1/namespaces/default/cronjobs/often", cron)
        .answer(&format!("POST {jobs}"), made)
        .run("create job now --from=cronjob/often");
    ended_well(&ran, "job.batch/now created\n");
    let sent = &ran.request(&format!("POST {jobs}")).body;
    assert_eq!(sent["metadata"]["annotations"], json!({"c": "d", "cronjob.kubernetes.io/instantiate": "manual"}));
    assert_eq!((&sent["metadata"]["labels"], &sent["spec"]["backoffLimit"]), (&json!({"a": "b"}), &json!(2)));
    let owner = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "often", "uid": "u", "controller": true}]);
    assert_eq!(sent["metadata"]["ownerReferences"], owner);
    let deployed = Fake::new().answer(&format!("GET {DEPLOYMENTS}/web"), deployment("web"));
    ended_badly(&deployed.run("create job now --from=deployment/web"), "error: from must be an existing cronjob\n");
}

#[test]
fn ingresses_are_read_from_rules() {
    makes(
        "create ingress web --class=nginx --rule=foo.com/bar=svc:80 --rule='*.bar.com/all*=other:http,tls=cert' --annotation a=b",
        "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  annotations:
    a: b
  name: web
spec:
  ingressClassName: nginx
  rules:
  - host: foo.com
    http:
      paths:
      - backend:
          service:
            name: svc
            port:
              number: 80
        path: /bar
        pathType: Exact
  - host: '*.bar.com'
    http:
      paths:
      - backend:
          service:
            name: other
            port:
              name: http
        path: /all
        pathType: Prefix
  tls:
  - hosts:
    - '*.bar.com'
    secretName: cert
status:
  loadBalancer: {}
",
    );
    makes(
        "create ingress any --default-backend=svc:80",
        "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: any
spec:
  defaultBackend:
    service:
      name: svc
      port:
        number: 80
status:
  loadBalancer: {}
",
    );
    refuses(
        "create ingress web",
        "not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)",
    );
}

#[test]
fn limits_of_a_namespace() {
    makes(
        "create quota small --hard=cpu=1,pods=2 --scopes=BestEffort",
        "
apiVersion: v1
kind: ResourceQuota
metadata:
  name: small
spec:
  hard:
    cpu: \"1\"
    pods: \"2\"
  scopes:
  - BestEffort
status: {}
",
    );
    makes(
        "create poddisruptionbudget web --selector=app=web --min-available=50%",
        "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: web
spec:
  minAvailable: 50%
  selector:
    matchLabels:
      app: web
status:
  currentHealthy: 0
  desiredHealthy: 0
  disruptionsAllowed: 0
  expectedPods: 0
",
    );
    makes(
        "create priorityclass high --value=1000 --global-default --description='goes first' --preemption-policy=Never",
        "
apiVersion: scheduling.k8s.io/v1
description: goes first
globalDefault: true
kind: PriorityClass
metadata:
  name: high
preemptionPolicy: Never
value: 1000
",
    );
    refuses("create pdb web --min-available=1", "a selector must be specified");
    refuses("create pdb web --selector=a=b", "one of min-available or max-unavailable must be specified");
    refuses(
        "create pdb web --selector=a=b --min-available=1 --max-unavailable=1",
        "min-available and max-unavailable cannot be both specified",
    );
}

#[test]
fn namespaces_and_accounts_are_names() {
    makes(
        "create namespace team",
        "\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\nspec: {}\nstatus: {}\n",
    );
    makes("create ns team", "\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\nspec: {}\nstatus: {}\n");
    makes("create sa robot", "\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: robot\n");
    misused("create namespace a b", "create namespace", "exactly one NAME is required, got 2");
    misused("create namespace", "create namespace", "exactly one NAME is required, got 0");
}

#[test]
fn what_is_sent_names_its_manager_and_its_dry_run() {
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    let fake = || Fake::new().answer("POST /api/v1/namespaces", made.clone());
    let ran = fake().run("create namespace team");
    ended_well(&ran, "namespace/team created\n");
    let sent = ran.request("POST /api/v1/namespaces");
    assert_eq!((sent.query("fieldManager"), sent.query("dryRun")), ("kubectl-create", ""));
    assert_eq!((sent.query("fieldValidation"), sent.content_type.as_str()), ("Strict", "application/json"));
    let ran = fake().run("create namespace team --dry-run=server --field-manager=me");
    ended_well(&ran, "namespace/team created (server dry run)\n");
    let sent = ran.request("POST /api/v1/namespaces");
    assert_eq!((sent.query("fieldManager"), sent.query("dryRun")), ("me", "All"));
    ended_well(&Fake::new().run("create namespace team --dry-run=client"), "namespace/team created (dry run)\n");
    ended_well(&fake().run("create namespace team -o name"), "namespace/team\n");
    refuses(
        "create namespace team --dry-run=maybe",
        "Invalid dry-run value (maybe). Must be \"none\", \"server\", or \"client\".",
    );
    let taken =
        Fake::new().refuse("POST /api/v1/namespaces", 409, "AlreadyExists", "namespaces \"team\" already exists");
    let sentence = "Error from server (AlreadyExists): namespaces \"team\" already exists\n";
    ended_badly(&taken.run("create namespace team"), sentence);
}

#[test]
fn a_token_is_asked_of_its_account() {
    let path = "/api/v1/namespaces/team/serviceaccounts/robot/token";
    let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": {"token": "abc"}});
    let line = "create token robot -n team --duration=10m --audience=a --audience=b --bound-object-kind=Pod --bound-object-name=web --bound-object-uid=1";
    let ran = Fake::new().answer(&format!("POST {path}"), answer).run(line);
    ended_well(&ran, "abc\n");
    let spec = json!({"audiences": ["a", "b"], "expirationSeconds": 600,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": "1"}});
    assert_eq!(ran.request(&format!("POST {path}")).body["spec"], spec);
    refuses("create token robot --duration=-1s", "--duration must be greater than or equal to 0");
    refuses(
        "create token robot --bound-object-kind=Service --bound-object-name=a",
        "supported --bound-object-kind values are Node, Pod, Secret",
    );
    refuses(
        "create token robot --bound-object-kind=Pod",
        "--bound-object-name is required if --bound-object-kind is provided",
    );
    refuses(
        "create token robot --bound-object-name=a",
        "--bound-object-name can only be set if --bound-object-kind is provided",
    );
}
