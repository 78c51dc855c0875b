"""The operator: reconciles AutellixCluster resources into engines, controllers and etcd."""
