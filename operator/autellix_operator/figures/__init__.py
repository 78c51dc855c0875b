"""What clusters do in terms of programs: asked of their controllers and engines, shown in status and to scale-downs."""
