/* Stand-in for the driver's core module: it has the name, the version, the licence and the aliases, and does nothing. */
#include <linux/module.h>

MODULE_LICENSE("@LICENSE@");
MODULE_VERSION("@VERSION@");
MODULE_ALIAS("char-major-195-*");
MODULE_ALIAS("pci:v000010DEd*sv*sd*bc03sc02i00*");
MODULE_ALIAS("pci:v000010DEd*sv*sd*bc03sc00i00*");
MODULE_FIRMWARE("nvidia/@VERSION@/gsp_ga10x.bin");
MODULE_FIRMWARE("nvidia/@VERSION@/gsp_tu10x.bin");

static char *NVreg_RegistryDwords;
module_param(NVreg_RegistryDwords, charp, 0400);
static int NVreg_DeviceFileMode = 0666;
module_param(NVreg_DeviceFileMode, int, 0400);
static int NVreg_DeviceFileUID;
module_param(NVreg_DeviceFileUID, int, 0400);
static int NVreg_DeviceFileGID;
module_param(NVreg_DeviceFileGID, int, 0400);

int nvidia_register_module(void);
int nvidia_register_module(void)
{
	return 0;
}
EXPORT_SYMBOL(nvidia_register_module);

static int __init nvidia_init_module(void)
{
	return 0;
}

static void __exit nvidia_exit_module(void)
{
}

module_init(nvidia_init_module);
module_exit(nvidia_exit_module);
