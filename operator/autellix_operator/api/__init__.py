"""The AutellixCluster resource as the operator sees it: its spec, its conditions, the names of its children."""
