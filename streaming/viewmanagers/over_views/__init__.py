"""Views over views: a mediator orders the parents' lists and maintains the child (ryco-pyco 3).

*RMQ* holds lists of parents that came before their REL, *UMQ* the numbers to maintain, in order.

In the order to read them: `umq`, `mediator` (figure 9), `over_view_modes` (which modes can, and why
not).
"""
